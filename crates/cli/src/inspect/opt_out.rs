//! How programs that refuse THP are told not to. Only what the programs' own documents say.

use hugepilot_core::observation::ThpConsent;

/// Programs that call `PR_SET_THP_DISABLE` on themselves, by the kernel's short name, with the switch against it.
const SWITCHES: [(&str, &str); 2] = [
    (
        "redis-server",
        "start it with `--disable-thp no`, or write `disable-thp no` into redis.conf",
    ),
    (
        "valkey-server",
        "start it with `--disable-thp no`, or write `disable-thp no` into valkey.conf",
    ),
];

/// What to say of a process's own choice; nothing where it made none.
pub fn advice(comm: &str, thp: ThpConsent) -> Option<String> {
    match thp {
        ThpConsent::Allowed => None,
        ThpConsent::ExceptAdvised => {
            Some("only explicit collapses and advised memory get huge pages (as `hugepilot run` starts programs)".to_owned())
        }
        ThpConsent::Refused => Some(format!("it opted out of THP, so nobody can collapse its memory; {}", switch(comm))),
    }
}

fn switch(comm: &str) -> String {
    match SWITCHES.iter().find(|(name, _)| *name == comm) {
        Some((_, switch)) => (*switch).to_owned(),
        None => {
            "look for a switch of the program's own, or for PR_SET_THP_DISABLE in what starts it"
                .to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_has_a_switch() {
        let said = advice("redis-server", ThpConsent::Refused).expect("it opted out");
        assert!(said.contains("disable-thp no"), "{said}");
        assert!(
            advice("other", ThpConsent::Refused)
                .expect("it too")
                .contains("PR_SET_THP_DISABLE")
        );
        assert_eq!(advice("redis-server", ThpConsent::Allowed), None);
    }
}

//! A holder: threads that keep memory and look after every page of it. It never forks, so that all of it can be
//! collapsed and split at all times; threads share every slot, page by page in turn.

use super::counters::Counters;
use super::patch::{Held, verify_held};
use crate::pattern::Random;
use crate::region::{PAGE, SLOT, fill_page, reserve};
use crate::sys::{self, Advice, Source};
use std::io;
use std::process::ExitCode;
use std::time::Duration;

/// Pages between two pauses: half a slot's worth.
const STRETCH: usize = 256;
/// A pause after each stretch leaves the processors to whoever manages the memory.
const PAUSE: Duration = Duration::from_millis(4);

/// Holds `bytes` in `threads` threads until the storm stops.
pub fn run(seed: u64, bytes: usize, threads: usize) -> Result<ExitCode, String> {
    let address = reserve(bytes);
    sys::map_at(address, bytes, Source::Anonymous).map_err(|error| error.to_string())?;
    let pages = bytes.next_multiple_of(SLOT) / PAGE;
    let run_thread = |number: usize| {
        let own = (number..pages)
            .step_by(threads)
            .map(|page| (address + page * PAGE, Held::Zeros));
        let mut own: Vec<(usize, Held)> = own.collect();
        let mut random =
            Random::new(seed.wrapping_add(u64::try_from(number).expect("few threads") << 32));
        hold(&mut own, &mut random)
    };
    let ended: io::Result<()> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|number| scope.spawn(move || run_thread(number)))
            .collect();
        running
            .into_iter()
            .try_for_each(|thread| thread.join().expect("a holder's thread does not panic"))
    });
    ended
        .map(|()| ExitCode::SUCCESS)
        .map_err(|error| format!("holding: {error}"))
}

/// One thread: fills its pages, then visits them in turn; at the end all are verified once more.
fn hold(pages: &mut [(usize, Held)], random: &mut Random) -> io::Result<()> {
    pages.iter_mut().for_each(|page| rewrite(page, random));
    while !Counters::stopped() {
        for stretch in pages.chunks_mut(STRETCH) {
            stretch
                .iter_mut()
                .try_for_each(|page| visit(page, random))?;
            std::thread::sleep(PAUSE);
            if Counters::stopped() {
                break;
            }
        }
    }
    pages
        .iter()
        .for_each(|(address, held)| verify_held(*address, *held));
    Ok(())
}

fn rewrite((address, held): &mut (usize, Held), random: &mut Random) {
    let seed = random.next();
    fill_page(*address, seed, 0);
    *held = Held::Seeded(seed);
}

fn visit(page: &mut (usize, Held), random: &mut Random) -> io::Result<()> {
    verify_held(page.0, page.1);
    match random.below(64) {
        0 => {
            sys::advise(page.0, PAGE, Advice::DontNeed)?;
            page.1 = Held::Zeros;
        }
        1 => {
            (page.0..page.0 + PAGE).for_each(|at| sys::poke(at, 0));
            page.1 = Held::Zeros;
        }
        2..8 => rewrite(page, random),
        _ => {}
    }
    Ok(())
}

//! Redis's protocol, as much of it as a load needs: commands as arrays of bulk strings, replies of every kind but nested
//! arrays.

use anyhow::{Context, bail};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A server that says nothing for so long hangs.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// The longest bulk string that is taken: INFO has a few kilobytes.
const BULK_MAX: usize = 16 << 20;

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// `+OK`
    Simple(String),
    /// `:3`
    Integer(i64),
    /// `$5`, or nothing
    Bulk(Option<Vec<u8>>),
}

/// A connection.
#[derive(Debug)]
pub struct Client {
    input: BufReader<TcpStream>,
    output: TcpStream,
    queued: Vec<u8>,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// If nobody listens there.
    pub fn connect(address: SocketAddr) -> std::io::Result<Self> {
        let output = TcpStream::connect(address)?;
        output.set_nodelay(true)?;
        output.set_read_timeout(Some(SILENCE_MAX))?;
        output.set_write_timeout(Some(SILENCE_MAX))?;
        let input = BufReader::new(output.try_clone()?);
        let queued = Vec::new();
        Ok(Self {
            input,
            output,
            queued,
        })
    }

    /// Puts a command in the queue.
    pub fn queue(&mut self, words: &[&[u8]]) {
        encode(&mut self.queued, words);
    }

    /// Sends what is in the queue.
    ///
    /// # Errors
    /// If the server went away.
    pub fn send(&mut self) -> anyhow::Result<()> {
        self.output
            .write_all(&self.queued)
            .context("Redis went away")?;
        self.queued.clear();
        Ok(())
    }

    /// The next reply.
    ///
    /// # Errors
    /// If the server went away, says something that is no reply, or refuses the command.
    pub fn reply(&mut self) -> anyhow::Result<Reply> {
        parse(&mut self.input)
    }

    /// Has a part of a further reply arrived already?
    pub fn has_more(&self) -> bool {
        !self.input.buffer().is_empty()
    }

    /// One command and its reply.
    ///
    /// # Errors
    /// As [`Client::reply`].
    pub fn call(&mut self, words: &[&str]) -> anyhow::Result<Reply> {
        let bytes: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.queue(&bytes);
        self.send()?;
        self.reply()
            .with_context(|| format!("redis: {}", words.join(" ")))
    }

    /// A section of INFO.
    ///
    /// # Errors
    /// As [`Client::reply`].
    pub fn info(&mut self, section: &str) -> anyhow::Result<Info> {
        match self.call(&["INFO", section])? {
            Reply::Bulk(Some(text)) => {
                Ok(Info(String::from_utf8(text).context("INFO is not text")?))
            }
            reply @ (Reply::Simple(_) | Reply::Integer(_) | Reply::Bulk(None)) => {
                bail!("Redis answered INFO with {reply:?}")
            }
        }
    }
}

/// What INFO says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info(String);

impl Info {
    /// The value of `field`.
    ///
    /// # Errors
    /// If this server does not tell it.
    pub fn get(&self, field: &str) -> anyhow::Result<&str> {
        let of = |line: &'_ str| Some(line.trim_end().split_once(':')?.0 == field);
        let line = self.0.lines().find(|line| of(line) == Some(true));
        let value = line.and_then(|line| line.trim_end().split_once(':'));
        value
            .map(|(_, value)| value)
            .with_context(|| format!("this Redis does not tell {field}"))
    }
}

fn encode(out: &mut Vec<u8>, words: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

fn parse(input: &mut impl BufRead) -> anyhow::Result<Reply> {
    let mut line = String::new();
    input.read_line(&mut line).context("Redis went away")?;
    let Some(line) = line.strip_suffix("\r\n") else {
        bail!("Redis went away in the middle of a reply");
    };
    let Some((kind, rest)) = line.split_at_checked(1) else {
        bail!("Redis sent an empty reply");
    };
    let number = || {
        rest.parse::<i64>()
            .with_context(|| format!("Redis sent {line:?}"))
    };
    match kind {
        "+" => Ok(Reply::Simple(rest.to_owned())),
        "-" => bail!("Redis refused: {rest}"),
        ":" => Ok(Reply::Integer(number()?)),
        "$" if rest == "-1" => Ok(Reply::Bulk(None)),
        "$" => bulk(
            input,
            usize::try_from(number()?).context("a negative length")?,
        ),
        _ => bail!("Redis sent {line:?}, which is no reply that we know"),
    }
}

fn bulk(input: &mut impl BufRead, len: usize) -> anyhow::Result<Reply> {
    if len > BULK_MAX {
        bail!("Redis sent {len} bytes at once");
    }
    let mut text = vec![0; len + 2];
    input.read_exact(&mut text).context("Redis went away")?;
    if text.split_off(len) != b"\r\n" {
        bail!("Redis sent a string without its end");
    }
    Ok(Reply::Bulk(Some(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replies(mut text: &[u8]) -> anyhow::Result<Vec<Reply>> {
        let mut replies = Vec::new();
        while !text.is_empty() {
            replies.push(parse(&mut text)?);
        }
        Ok(replies)
    }

    #[test]
    fn a_command_is_an_array_of_bulk_strings() {
        let mut out = Vec::new();
        encode(&mut out, &[b"SET", b"k", b"\r\n"]);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\n\r\n\r\n");
    }

    #[test]
    fn replies_in_a_row() {
        let replies = replies(b"+OK\r\n:32\r\n$3\r\na\r\n\r\n$-1\r\n").expect("four replies");
        let bulk = Reply::Bulk(Some(b"a\r\n".to_vec()));
        assert_eq!(
            replies,
            [
                Reply::Simple("OK".to_owned()),
                Reply::Integer(32),
                bulk,
                Reply::Bulk(None)
            ]
        );
    }

    #[test]
    fn what_is_no_reply_is_an_error() {
        for text in [
            &b"-ERR no\r\n"[..],
            b"?\r\n",
            b"\r\n",
            b"+OK",
            b"$5\r\nab",
            b"$-7\r\n",
            b"$99999999999\r\n",
        ] {
            assert!(replies(text).is_err(), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn info_fields_are_whole_names() {
        let info = Info("# Stats\r\nlatest_fork_usec:412\r\nfork:7\r\n".to_owned());
        assert_eq!(info.get("latest_fork_usec").expect("is there"), "412");
        assert!(info.get("latest").is_err());
    }
}

//! Reading one integer of a Python pickle by following its opcodes. No object is built, and so
//! nothing can be executed.

use std::collections::BTreeSet;

/// Things on the stack, marks among them, after which a pickle is given up.
const STACK: usize = 1 << 20;

/// The integer under the string `key` in the dictionary, or among the attributes of the object,
/// that the pickle holds. Of several pickles in one file, the first that has it; of a cut one,
/// what can be told so far.
pub(super) fn integer_at(bytes: &[u8], key: &str) -> Option<u64> {
    let mut machine = Machine {
        key: key.as_bytes(),
        rest: bytes,
        stack: Vec::new(),
        marks: Vec::new(),
        names: BTreeSet::new(),
        named: 0,
    };
    loop {
        match machine.step() {
            Some(None) => {}
            Some(Some(Thing::Holds(n))) => return Some(n),
            Some(Some(_)) => machine.clear(),
            None => break,
        }
    }
    // The outermost dictionary is filled last, and lies lowest.
    machine.stack.windows(2).find_map(|pair| match pair {
        [Thing::Key, Thing::Int(n)] => Some(*n),
        _ => None,
    })
}

/// What lies on the stack, as far as it matters.
#[derive(Clone, Copy, PartialEq)]
enum Thing {
    /// The key.
    Key,
    /// An integer of 0..2^64.
    Int(u64),
    /// Something that holds the integer under the key.
    Holds(u64),
    Other,
}

impl Thing {
    /// What holds either holds what they hold.
    fn with(self, other: Self) -> Self {
        match (self, other) {
            (Thing::Holds(_), _) => self,
            (_, Thing::Holds(_)) => other,
            _ => Thing::Other,
        }
    }
}

struct Machine<'a> {
    key: &'a [u8],
    rest: &'a [u8],
    stack: Vec<Thing>,
    /// Heights of the stack at open marks.
    marks: Vec<usize>,
    /// Names in the memo that stand for the key.
    names: BTreeSet<u64>,
    /// Names that `MEMOIZE` gave.
    named: u64,
}

impl<'a> Machine<'a> {
    /// Follows one opcode: the whole of a pickle at its end, and `None` where nothing can be
    /// followed any more.
    fn step(&mut self) -> Option<Option<Thing>> {
        let code = self.take(1)?[0];
        match code {
            b'.' => return Some(Some(self.pop()?)),
            b'(' => self.marks.push(self.stack.len()),
            b'0' => drop(self.pop()?),
            b'2' => self.push(*self.stack.last()?),
            b'N' | b')' | b']' | b'}' | 0x88 | 0x89 | 0x8f | 0x97 => self.push(Thing::Other),
            0x98 => {}
            // Items into containers.
            b'a' => drop(self.pop()?),
            b'e' | 0x90 | b'1' => drop(self.marked()?),
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.fill(&[key, value])?;
            }
            b'u' => {
                let items = self.marked()?;
                self.fill(&items)?;
            }
            b'd' => {
                let items = self.marked()?;
                self.push(Thing::Other);
                self.fill(&items)?;
            }
            b'b' => {
                let state = self.pop()?;
                let object = self.pop()?;
                self.push(object.with(state));
            }
            // Things made of others.
            b'l' | b'o' | b't' | 0x91 => {
                let parts = self.marked()?;
                self.push(parts.into_iter().fold(Thing::Other, Thing::with));
            }
            b'i' => {
                self.line().and_then(|_| self.line())?;
                self.marked()?;
                self.push(Thing::Other);
            }
            b'Q' | 0x85 => self.join(1)?,
            b'R' | 0x81 | 0x86 | 0x93 => self.join(2)?,
            0x87 | 0x92 => self.join(3)?,
            b'c' => {
                self.line().and_then(|_| self.line())?;
                self.push(Thing::Other);
            }
            0x82..=0x84 => {
                self.take(1 << (code - 0x82))?;
                self.push(Thing::Other);
            }
            b'F' | b'P' => {
                self.line()?;
                self.push(Thing::Other);
            }
            b'G' => {
                self.take(8)?;
                self.push(Thing::Other);
            }
            0x80 => drop(self.take(1)?),
            0x95 => drop(self.take(8)?),
            // Integers.
            b'I' | b'L' => {
                let line = self.line()?;
                self.push(decimal(line).map_or(Thing::Other, Thing::Int));
            }
            b'K' => self.int(1)?,
            b'M' => self.int(2)?,
            b'J' => self.int(4)?,
            0x8a => {
                let size = self.number(1)?;
                self.int(size)?;
            }
            0x8b => {
                let size = self.number(4)?;
                self.int(size)?;
            }
            // Strings, and bytes, which are no keys.
            b'S' | b'V' => {
                let line = self.line()?;
                self.text(unquoted(line));
            }
            b'U' | 0x8c => self.sized(1, true)?,
            b'T' | b'X' => self.sized(4, true)?,
            0x8d => self.sized(8, true)?,
            b'C' => self.sized(1, false)?,
            b'B' => self.sized(4, false)?,
            0x8e | 0x96 => self.sized(8, false)?,
            // The memo.
            b'p' => {
                let name = decimal(self.line()?)?;
                self.name(name)?;
            }
            b'q' => {
                let name = self.number(1)?;
                self.name(name)?;
            }
            b'r' => {
                let name = self.number(4)?;
                self.name(name)?;
            }
            0x94 => {
                self.name(self.named)?;
                self.named += 1;
            }
            b'g' => {
                let name = decimal(self.line()?)?;
                self.recall(name);
            }
            b'h' => {
                let name = self.number(1)?;
                self.recall(name);
            }
            b'j' => {
                let name = self.number(4)?;
                self.recall(name);
            }
            _ => return None,
        }
        (self.stack.len() + self.marks.len() <= STACK).then_some(None)
    }

    /// Before the next pickle of a file.
    fn clear(&mut self) {
        self.stack.clear();
        self.marks.clear();
        self.names.clear();
        self.named = 0;
    }

    fn push(&mut self, thing: Thing) {
        self.stack.push(thing);
    }

    fn pop(&mut self) -> Option<Thing> {
        self.stack.pop()
    }

    /// Everything above the last mark.
    fn marked(&mut self) -> Option<Vec<Thing>> {
        let height = self.marks.pop()?;
        (height <= self.stack.len()).then(|| self.stack.split_off(height))
    }

    /// Puts keys and values into what lies on top.
    fn fill(&mut self, items: &[Thing]) -> Option<()> {
        let top = self.stack.last_mut()?;
        for item in items.chunks_exact(2) {
            if let [Thing::Key, Thing::Int(n)] = item {
                *top = Thing::Holds(*n);
            }
        }
        Some(())
    }

    /// Makes one thing of the upper `count`.
    fn join(&mut self, count: usize) -> Option<()> {
        let mut whole = Thing::Other;
        for _ in 0..count {
            whole = self.pop()?.with(whole);
        }
        self.push(whole);
        Some(())
    }

    fn text(&mut self, text: &[u8]) {
        self.push(if text == self.key { Thing::Key } else { Thing::Other });
    }

    /// A string or bytes behind a length of `width` bytes.
    fn sized(&mut self, width: usize, text: bool) -> Option<()> {
        let size = self.number(width)?;
        let content = self.take(usize::try_from(size).ok()?)?;
        match text {
            true => self.text(content),
            false => self.push(Thing::Other),
        }
        Some(())
    }

    /// A little-endian integer of `size` bytes; all but those of one or two are signed.
    fn int(&mut self, size: u64) -> Option<()> {
        let bytes = self.take(usize::try_from(size).ok()?)?;
        let (low, high) = bytes.split_at(bytes.len().min(8));
        let negative = size > 2 && bytes.last().is_some_and(|byte| byte >> 7 == 1);
        let fits = !negative && high.iter().all(|&byte| byte == 0);
        self.push(if fits { Thing::Int(little_endian(low)) } else { Thing::Other });
        Some(())
    }

    fn name(&mut self, name: u64) -> Option<()> {
        match self.stack.last()? {
            Thing::Key => self.names.insert(name),
            _ => self.names.remove(&name),
        };
        Some(())
    }

    fn recall(&mut self, name: u64) {
        self.push(if self.names.contains(&name) { Thing::Key } else { Thing::Other });
    }

    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        Some(taken)
    }

    fn number(&mut self, bytes: usize) -> Option<u64> {
        self.take(bytes).map(little_endian)
    }

    fn line(&mut self) -> Option<&'a [u8]> {
        let end = self.rest.iter().position(|&byte| byte == b'\n')?;
        let line = self.take(end + 1)?;
        line.split_last().map(|(_, line)| line)
    }
}

/// At most eight bytes.
fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rfold(0, |n, &byte| n << 8 | u64::from(byte))
}

fn decimal(line: &[u8]) -> Option<u64> {
    std::str::from_utf8(line).ok()?.trim_end_matches('L').parse().ok()
}

fn unquoted(line: &[u8]) -> &[u8] {
    match line {
        [b'\'', inner @ .., b'\''] | [b'"', inner @ .., b'"'] => inner,
        bare => bare,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Python's `pickle` writes of `{"groups": [{"schema_version": 2}], "schema_version": 4}`
    /// under protocols 0 to 5; under 2 and 4, of the same with forty keys before it, of an
    /// `OrderedDict`, of an object with these attributes; and a file of four pickles.
    const PICKLES: &[&str] = &[
        "286470300a5667726f7570730a70310a286c70320a286470330a56736368656d615f76657273696f6e0a70340a49320a73617367340a49340a732e",
        "7d710028580600000067726f75707371015d71027d7103580e000000736368656d615f76657273696f6e71044b02736168044b04752e",
        "80027d710028580600000067726f75707371015d71027d7103580e000000736368656d615f76657273696f6e71044b02736168044b04752e",
        "80037d710028580600000067726f75707371015d71027d7103580e000000736368656d615f76657273696f6e71044b02736168044b04752e",
        "8004952b000000000000007d94288c0667726f757073945d947d948c0e736368656d615f76657273696f6e944b02736168044b04752e",
        "8005952b000000000000007d94288c0667726f757073945d947d948c0e736368656d615f76657273696f6e944b02736168044b04752e",
        "80027d71002858010000003071014b0058010000003171024b0158010000003271034b0258010000003371044b0358010000003471054b0458010000003571064b0558010000003671074b0658010000003771084b0758010000003871094b08580100000039710a4b0958020000003130710b4b0a58020000003131710c4b0b58020000003132710d4b0c58020000003133710e4b0d58020000003134710f4b0e5802000000313571104b0f5802000000313671114b105802000000313771124b115802000000313871134b125802000000313971144b135802000000323071154b145802000000323171164b155802000000323271174b165802000000323371184b175802000000323471194b1858020000003235711a4b1958020000003236711b4b1a58020000003237711c4b1b58020000003238711d4b1c58020000003239711e4b1d58020000003330711f4b1e5802000000333171204b1f5802000000333271214b205802000000333371224b215802000000333471234b225802000000333571244b235802000000333671254b245802000000333771264b255802000000333871274b265802000000333971284b27580600000067726f75707371295d712a287d712b580e000000736368656d615f76657273696f6e712c4b02737d712d682c4b037365682c4b04752e",
        "80049541010000000000007d94288c0130944b008c0131944b018c0132944b028c0133944b038c0134944b048c0135944b058c0136944b068c0137944b078c0138944b088c0139944b098c023130944b0a8c023131944b0b8c023132944b0c8c023133944b0d8c023134944b0e8c023135944b0f8c023136944b108c023137944b118c023138944b128c023139944b138c023230944b148c023231944b158c023232944b168c023233944b178c023234944b188c023235944b198c023236944b1a8c023237944b1b8c023238944b1c8c023239944b1d8c023330944b1e8c023331944b1f8c023332944b208c023333944b218c023334944b228c023335944b238c023336944b248c023337944b258c023338944b268c023339944b278c0667726f757073945d94287d948c0e736368656d615f76657273696f6e944b02737d94682c4b037365682c4b04752e",
        "800263636f6c6c656374696f6e730a4f726465726564446963740a71002952710128580600000067726f75707371025d71037d7104580e000000736368656d615f76657273696f6e71054b02736168054b04752e",
        "8004954a000000000000008c0b636f6c6c656374696f6e73948c0b4f72646572656444696374949394295294288c0667726f757073945d947d948c0e736368656d615f76657273696f6e944b02736168074b04752e",
        "8002636d0a440a7100298171017d710228580600000067726f75707371035d71047d7105580e000000736368656d615f76657273696f6e71064b02736168064b0475622e",
        "80049539000000000000008c016d948c01449493942981947d94288c0667726f757073945d947d948c0e736368656d615f76657273696f6e944b02736168084b0475622e",
        "80028a0a6cfc9c46f9206aa850192e80024de9032e80027d710028581000000070726f746f636f6c5f76657273696f6e71014de903580d0000006c6974746c655f656e6469616e710288752e80027d710028580600000067726f75707371015d71027d7103580e000000736368656d615f76657273696f6e71044b02736168044b04752e",
    ];

    #[test]
    fn the_outermost_integer_under_the_key_is_read_in_every_protocol() {
        for text in PICKLES {
            let bytes = hex::decode(text).unwrap();
            assert_eq!(integer_at(&bytes, "schema_version"), Some(4), "{text}");
            assert_eq!(integer_at(&bytes, "groups"), None);
            // A cut pickle gives what it has, and no more.
            for end in 0..bytes.len() {
                let found = integer_at(&bytes[..end], "schema_version");
                assert!(matches!(found, None | Some(2..=4)), "{found:?}");
            }
        }
    }

    #[test]
    fn what_is_no_pickle_is_nothing() {
        let nested = [b'('; STACK + 2];
        for broken in [
            &b"\x8d\xff\xff\xff\xff\xff\xff\xff\xff"[..],
            b"X\xff\xff\xff\xff",
            b"\x8b\xff\xff\xff\xff",
            b"I",
            b"c\n",
            b"\xff",
            b"u",
            b".",
            &nested,
        ] {
            assert_eq!(integer_at(broken, "schema_version"), None);
        }
    }
}

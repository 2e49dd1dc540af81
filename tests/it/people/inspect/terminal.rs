//! The terminal is given back: after `q`, a signal, and a panic.

use std::process::Command;

use forestctl::cli::inspect::terminal::{Process, on_own_screen};

use super::Place;

/// Runs a command on a terminal of its own, sends what it is told to, and prints as JSON what came
/// out, the exit code, and whether the terminal still reads lines and shows what is typed.
const DRIVER: &str = r#"
import fcntl, json, os, pty, select, signal, struct, subprocess, sys, termios, time
wanted, sent, command = sys.argv[1], sys.argv[2], sys.argv[3:]
ours, theirs = pty.openpty()
fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack('HHHH', 24, 80, 0, 0))
child = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
                         preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
shown, deadline, done = b'', time.time() + 60, False
while child.poll() is None and time.time() < deadline:
    if select.select([ours], [], [], 0.05)[0]:
        shown += os.read(ours, 65536)
    if not done and wanted.encode() in shown:
        done = True
        if sent == 'TERM':
            child.send_signal(signal.SIGTERM)
        else:
            os.write(ours, sent.encode())
if child.poll() is None:
    child.kill()
code = child.wait()
while select.select([ours], [], [], 0.05)[0]:
    shown += os.read(ours, 65536)
flags = termios.tcgetattr(theirs)[3]
print(json.dumps({'shown': shown.decode(errors='replace'), 'code': code,
                  'lines': bool(flags & termios.ICANON), 'echo': bool(flags & termios.ECHO)}))
"#;

const TAKEN: &str = "\u{1b}[?1049h";
const GIVEN_BACK: &str = "\u{1b}[?1049l";

fn drive(command: &mut Command) -> serde_json::Value {
    let output = command.env("TERM", "xterm").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Where the terminal was given back; panics if it was not.
fn given_back(told: &serde_json::Value) -> usize {
    let shown = told["shown"].as_str().unwrap();
    assert_eq!((&told["lines"], &told["echo"]), (&true.into(), &true.into()), "{shown:?}");
    assert_eq!(shown.matches(TAKEN).count(), 1, "{shown:?}");
    let back = shown.rfind(GIVEN_BACK).expect("the screen before is back");
    assert!(shown[back..].contains("\u{1b}[?25h"), "the cursor is back: {shown:?}");
    back
}

fn inspect(place: &Place, sent: &str) -> serde_json::Value {
    let mut command = Command::new("python3");
    let program = env!("CARGO_BIN_EXE_forestctl");
    command.args(["-c", DRIVER, "p01_g0", sent, program, "inspect", "run.forest"]);
    drive(command.current_dir(place.path(".")))
}

#[test]
fn keys_and_signals_end_it_and_the_terminal_is_as_before() {
    let place = Place::closed_loop();
    let told = inspect(&place, "q");
    given_back(&told);
    assert_eq!(told["code"], 0);
    // Interrupted in raw mode, it is a key.
    let told = inspect(&place, "\u{3}");
    given_back(&told);
    assert_eq!(told["code"], 0);
    let told = inspect(&place, "TERM");
    let back = given_back(&told);
    assert_eq!(told["code"], 130);
    let shown = told["shown"].as_str().unwrap();
    assert!(shown[back..].contains("interrupted"), "{shown:?}");
    // What is copied goes to the terminal as OSC 52.
    let told = inspect(&place, "yq");
    given_back(&told);
    let copied = "\u{1b}]52;c;cDAxX2cw\u{7}";
    assert!(told["shown"].as_str().unwrap().contains(copied), "{told}");
}

/// Not a test by itself: what [`a_panic_is_told_on_the_screen_before`] runs on a terminal.
#[test]
#[ignore = "run by another test, on a terminal of its own"]
fn panics_on_its_own_screen() {
    let _ = on_own_screen(&mut Process::default(), |_| panic!("a defect"));
}

#[test]
fn a_panic_is_told_on_the_screen_before() {
    let this = std::env::current_exe().unwrap();
    let mut command = Command::new("python3");
    command.args(["-c", DRIVER, "never shown", ""]).arg(this);
    command.args(["people::inspect::terminal::panics_on_its_own_screen", "--exact", "--ignored"]);
    let told = drive(command.arg("--nocapture"));
    let back = given_back(&told);
    assert_eq!(told["code"], 101);
    let shown = told["shown"].as_str().unwrap();
    assert!(shown[back..].contains("a defect"), "{shown:?}");
    assert!(!shown[..back].contains("a defect"), "{shown:?}");
}

/// As [`DRIVER`], for a terminal that goes away without a signal; prints the exit code.
const GONE: &str = r#"
import fcntl, os, pty, select, struct, subprocess, sys, termios, time
ours, theirs = pty.openpty()
fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack('HHHH', 24, 80, 0, 0))
child = subprocess.Popen(sys.argv[2:], stdin=theirs, stdout=theirs, stderr=theirs)
os.close(theirs)
shown, deadline = b'', time.time() + 60
while sys.argv[1].encode() not in shown and time.time() < deadline:
    if select.select([ours], [], [], 0.05)[0]:
        shown += os.read(ours, 65536)
os.close(ours)
try:
    print(child.wait(30))
except subprocess.TimeoutExpired:
    child.kill()
    print('never')
"#;

#[test]
fn a_terminal_that_goes_away_ends_it() {
    let place = Place::closed_loop();
    let mut command = Command::new("python3");
    let program = env!("CARGO_BIN_EXE_forestctl");
    command.args(["-c", GONE, "p01_g0", program, "inspect", "run.forest"]);
    let output = command.current_dir(place.path(".")).env("TERM", "xterm").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "2");
}

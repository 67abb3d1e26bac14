//! This crate's structures, opcodes and flags against the C header of the machine, as far as that goes: an older header
//! lacks what came later.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::Command;
use tombolo_fuse::protocol::abi;
use tombolo_fuse::protocol::flags::{DEVICE_IOCTL_CLONE, READ_BUFFER_BYTES_MIN, bits, init};
use tombolo_fuse::protocol::opcode::Opcode;

/// Structures whose C form ends in fields that this crate writes as zeroes: name, and the size in C.
const LONGER_IN_C: [(&str, usize); 2] = [
    ("fuse_open_out", abi::OPEN_OUT_BYTES),
    ("fuse_init_out", abi::INIT_OUT_BYTES),
];

/// What C is asked to print, with what this crate expects.
#[derive(Default)]
struct Questions {
    program: String,
    expected: BTreeMap<String, u64>,
}

impl Questions {
    fn ask(&mut self, label: &str, expression: &str, since_minor: u32, expected: u64) {
        writeln!(self.program, "#if FUSE_KERNEL_MINOR_VERSION >= {since_minor}").unwrap();
        writeln!(
            self.program,
            "printf(\"%s %llu\\n\", \"{label}\", (unsigned long long)({expression}));"
        )
        .unwrap();
        writeln!(self.program, "#endif").unwrap();
        self.expected.insert(label.to_owned(), expected);
    }

    fn ask_all(&mut self) {
        for layout in abi::layouts() {
            let name = layout.c_name;
            let longer = LONGER_IN_C.iter().find(|(longer, _)| *longer == name);
            let bytes = longer.map_or(layout.bytes, |(_, bytes)| *bytes);
            self.ask(
                name,
                &format!("sizeof(struct {name})"),
                layout.since_minor,
                bytes as u64,
            );
            for field in &layout.fields {
                let label = format!("{name}.{}", field.name);
                let offset = format!("offsetof(struct {name}, {})", field.name);
                self.ask(&label, &offset, layout.since_minor, field.offset as u64);
                let size = format!("sizeof(((struct {name} *)0)->{})", field.name);
                self.ask(&format!("{label}:size"), &size, layout.since_minor, field.bytes as u64);
            }
        }
        for (opcode, c_name, minor) in Opcode::ALL {
            if *minor > 0 {
                self.ask(c_name, c_name, *minor, opcode.number().into());
            }
        }
        for (c_name, value, minor) in init::TABLE.iter().chain(bits::TABLE) {
            self.ask(c_name, c_name, *minor, *value);
        }
        self.ask("FUSE_DEV_IOC_CLONE", "FUSE_DEV_IOC_CLONE", 24, DEVICE_IOCTL_CLONE);
        self.ask(
            "FUSE_MIN_READ_BUFFER",
            "FUSE_MIN_READ_BUFFER",
            1,
            READ_BUFFER_BYTES_MIN as u64,
        );
    }
}

fn run_c(questions: &Questions) -> Option<String> {
    let directory = tempfile::tempdir().unwrap();
    let (source, program) = (directory.path().join("golden.c"), directory.path().join("golden"));
    let text = format!(
        "#include <stddef.h>\n#include <stdio.h>\n#include <sys/ioctl.h>\n#include <linux/fuse.h>\nint main(void) {{\n\
         printf(\"minor %d\\n\", FUSE_KERNEL_MINOR_VERSION);\n{}return 0;\n}}\n",
        questions.program
    );
    std::fs::write(&source, text).unwrap();
    let compiled = Command::new("cc").arg("-o").arg(&program).arg(&source).output().ok()?;
    if !compiled.status.success() {
        let errors = String::from_utf8_lossy(&compiled.stderr).into_owned();
        assert!(errors.contains("linux/fuse.h: No such file"), "{errors}");
        return None;
    }
    let output = Command::new(program).output().unwrap();
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn structures_and_numbers_are_those_of_the_c_header() {
    let mut questions = Questions::default();
    questions.ask_all();
    let Some(answers) = run_c(&questions) else {
        eprintln!("SKIPPED: no C compiler, or no <linux/fuse.h>");
        return;
    };
    let mut lines = answers.lines();
    println!("the header is FUSE 7.{}", lines.next().unwrap());
    let mut compared = 0;
    for line in lines {
        let (label, value) = line.split_once(' ').unwrap();
        assert_eq!(value.parse::<u64>().unwrap(), questions.expected[label], "{label}");
        compared += 1;
    }
    println!("{compared} of {} figures compared", questions.expected.len());
    // The oldest header that this project is built on, Debian 12's, has about this many.
    assert!(compared > 400, "only {compared} figures were compared");
}

/// What a header of Linux 6.1 does not have: the figures of later kernels' `<linux/fuse.h>`, written down.
#[test]
fn later_structures_have_their_published_sizes() {
    let later: BTreeMap<&str, usize> = [
        ("fuse_sx_time", 16),
        ("fuse_statx", 256),
        ("fuse_statx_in", 24),
        ("fuse_statx_out", 288),
        ("fuse_copy_file_range_out", 8),
    ]
    .into();
    let found: BTreeMap<&str, usize> = abi::layouts()
        .iter()
        .filter(|layout| layout.since_minor >= 39)
        .map(|layout| (layout.c_name, layout.bytes))
        .collect();
    assert_eq!(found, later);
    assert_eq!(Opcode::Statx.number(), 52);
    assert_eq!(Opcode::CopyFileRange64.number(), 53);
    assert_eq!(bits::NOTIFY_RESEND, 7);
    assert_eq!(init::HAS_RESEND, 1 << 39);
}

//! Compiles Lua 5.1.5 with the lines of [`CHANGES`] changed.
//!
//! Cargo tells where the sources of `lua-src` lie; that crate's own compilation takes them as they are.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// A piece of a source that stands there once, and what takes its place.
struct Change {
    file: &'static str,
    from: &'static str,
    to: &'static str,
}

const CHANGES: [Change; 3] = [
    // All of a string is hashed, as by Redis. By every so many bytes of it, strings that differ in the others would be looked through one by
    // one whenever another comes: 100,000 of 1,000 bytes take minutes.
    Change { file: "lstring.c", from: "size_t step = (l>>5)+1;", to: "size_t step = 1;" },
    // The name of a chunk is known to the collector while the chunk is read (CVE-2025-49844).
    Change {
        file: "lparser.c",
        from: "luaX_setinput(L, &lexstate, z, luaS_new(L, name));",
        to: "setsvalue2s(L, L->top, luaS_new(L, name));\n  incr_top(L);\n  luaX_setinput(L, &lexstate, z, rawtsvalue(L->top - 1));",
    },
    Change {
        file: "lparser.c",
        from: "lua_assert(lexstate.fs == NULL);\n  return",
        to: "lua_assert(lexstate.fs == NULL);\n  L->top--;\n  return",
    },
];

/// The programs among the sources, which are no part of the library.
const PROGRAMS: [&str; 2] = ["lua.c", "luac.c"];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo says it"));
    let changed = out.join("changed");
    let units = copy(&stock_sources(), &changed);
    let mut build = cc::Build::new();
    build
        .define("LUA_USE_LINUX", None)
        .include(&changed)
        .warnings(false)
        .flag_if_supported("-fno-common")
        .files(units)
        // Whoever is linked before it has names that it has.
        .link_lib_modifier("+whole-archive")
        .link_lib_modifier("-bundle");
    build.compile("lua5.1");
}

/// Where `lua-src` has them.
fn stock_sources() -> PathBuf {
    let cargo = env::var_os("CARGO").expect("cargo says it");
    let target = env::var("TARGET").expect("cargo says it");
    // What is missing of the other packages is fetched, those for other platforms left aside.
    let args = ["metadata", "--format-version", "1", "--locked", "--filter-platform", &target];
    let told = Command::new(cargo).args(args).output().expect("cargo runs");
    assert!(told.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&told.stderr));
    let text = String::from_utf8(told.stdout).expect("it is JSON");
    // What is needed of it is one string without anything that JSON escapes.
    let (_, package) = text.split_once(r#""name":"lua-src","version""#).expect("lua-src is a dependency");
    let (_, path) = package.split_once(r#""manifest_path":""#).expect("a package has one");
    let (manifest, _) = path.split_once('"').expect("a string ends");
    Path::new(manifest).with_file_name("lua-5.1.5")
}

/// Copies the sources with what is changed of them, and says which are to be compiled.
fn copy(from: &Path, to: &Path) -> Vec<PathBuf> {
    fs::create_dir_all(to).expect("the directory of the build can be written");
    let mut units = Vec::new();
    for file in fs::read_dir(from).expect("the sources are there") {
        let name = file.expect("they can be listed").file_name().into_string().expect("names are plain");
        let mut text = fs::read_to_string(from.join(&name)).expect("sources are text");
        for change in CHANGES.iter().filter(|change| change.file == name) {
            assert_eq!(text.matches(change.from).count(), 1, "{name} has changed: {}", change.from);
            text = text.replace(change.from, change.to);
        }
        let path = to.join(&name);
        fs::write(&path, text).expect("the directory of the build can be written");
        if name.ends_with(".c") && !PROGRAMS.contains(&name.as_str()) {
            units.push(path);
        }
    }
    units.sort();
    units
}

//! `sysctl(8)` of macOS.

use crate::machine_memory::Memory;
use crate::wire::Reply;
use crate::world::{World, moments};

/// Runs the command.
pub fn run(world: &World, arguments: &[String]) -> Reply {
    let mut bare = false;
    let mut ignore_unknown = false;
    let mut reply = Reply::quiet();
    for word in arguments {
        if let Some(flags) = word.strip_prefix('-') {
            bare |= flags.contains('n');
            ignore_unknown |= flags.contains('i');
            continue;
        }
        match value(world, word) {
            Some(value) if bare => reply.stdout.push_str(&format!("{value}\n")),
            Some(value) => reply.stdout.push_str(&format!("{word}: {value}\n")),
            None if ignore_unknown => {}
            None => {
                reply.stderr.push_str(&format!("sysctl: unknown oid '{word}'\n"));
                reply.code = 1;
            }
        }
    }
    reply
}

fn value(world: &World, name: &str) -> Option<String> {
    Some(match name {
        "hw.memsize" => world.marker.memory_bytes.to_string(),
        "hw.pagesize" | "vm.pagesize" => "16384".to_owned(),
        "hw.ncpu" | "hw.logicalcpu" | "hw.physicalcpu" | "hw.activecpu" => "16".to_owned(),
        "hw.perflevel0.physicalcpu" => "12".to_owned(),
        "hw.perflevel1.physicalcpu" => "4".to_owned(),
        "hw.model" => "Mac16,9".to_owned(),
        "hw.optional.arm64" => "1".to_owned(),
        "machdep.cpu.brand_string" => "Apple M4 Max".to_owned(),
        "kern.ostype" => "Darwin".to_owned(),
        "kern.osrelease" => "25.6.0".to_owned(),
        "kern.osproductversion" => "26.4".to_owned(),
        "kern.osversion" => "25G64".to_owned(),
        "kern.hostname" => "sim.local".to_owned(),
        "sysctl.proc_translated" => "0".to_owned(),
        "kern.boottime" => {
            let boot = world.clock.file().anchor_wall_unix_ms - 3_600_000;
            format!("{{ sec = {}, usec = 0 }} {}", boot / 1000, moments::ctime(boot))
        }
        "kern.memorystatus_vm_pressure_level" => Memory::now(world).pressure.to_string(),
        "kern.memorystatus_level" => Memory::now(world).free_percent().to_string(),
        "vm.swapusage" => swap(Memory::now(world).swap_bytes),
        "vm.loadavg" => "{ 2.41 2.18 1.96 }".to_owned(),
        "iogpu.wired_limit_mb" => "0".to_owned(),
        _ => return None,
    })
}

fn swap(used_bytes: u64) -> String {
    let mib = used_bytes as f64 / 1_048_576.0;
    let total = (mib / 1024.0).ceil() * 1024.0;
    format!("total = {total:.2}M  used = {mib:.2}M  free = {:.2}M  (encrypted)", total - mib)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_is_always_in_megabytes() {
        assert_eq!(swap(0), "total = 0.00M  used = 0.00M  free = 0.00M  (encrypted)");
        assert_eq!(swap(1_038_909_440), "total = 1024.00M  used = 990.78M  free = 33.22M  (encrypted)");
    }
}

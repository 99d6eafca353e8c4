// Parses lists of CPUs as environment variables of OpenMP write them. CPU numbers are below 1024. Work and memory are bounded by the length
// of the text, which may be 4096 characters. Thread-safe.
#pragma once
#include <bitset>
#include <optional>
#include <string_view>

namespace spillway::trainer {

constexpr int kMostCpus = 1024;
using CpuSet = std::bitset<kMostCpus>;

/// Parses the value of GOMP_CPU_AFFINITY: CPUs and ranges, which may have a stride, with spaces or commas between them. "0 3 1-2,4-15:2" is
/// 0, 3, 1, 2, 4, 6, 8, 10, 12, 14. Returns nothing for other text.
std::optional<CpuSet> parse_cpu_affinity(std::string_view text);

/// Parses the value of OMP_PLACES if it lists CPUs, and returns the CPUs of all places. "{0,1},{4:2}" is 0, 1, 4, 5. A place or a CPU may
/// be repeated, as in ":count" or ":count:stride": "{0:2}:3:4" is {0,1}, {4,5}, {8,9}. CPUs outside of 0 to 1023 are left out. Returns
/// nothing for other text, and for lists that exclude CPUs with "!".
std::optional<CpuSet> parse_places(std::string_view text);

}  // namespace spillway::trainer

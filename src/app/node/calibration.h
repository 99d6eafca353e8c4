// What this node can do: measured by `spillway bench`, kept per host in $XDG_CACHE_HOME/spillway/<host>.json (else ~/.cache/spillway), read
// by the planner and the profile. What was not measured is one of the constants below. The file is untrusted: a value that is missing,
// malformed or absurd is the constant, and `warning` says so. Values; save_bench_rows() writes beside and renames, one process at a time.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/node/host.h"
#include "base/types.h"
#include "tensor/dtype.h"

namespace spillway::app {

constexpr int kBenchRanks = 2;  // that bench starts on this node for `communicator`

/// A scratch path as bench saw it: sequential 1 MiB transfers at the engine's queue depth. The constants are an ordinary NVMe drive.
struct DiskRates {
  std::string path;                   // absolute; empty: not measured
  double read_bytes_per_s = 1.5e9;    // reads alone
  double write_bytes_per_s = 1.0e9;   // writes alone
  double mixed_bytes_per_s = 1.25e9;  // as many reads as writes at once, the sum of both
  /// What reads and writes at once make of the disk: 1 where they share it, 2 where neither notices the other.
  double duplex() const;
};

/// Whether products of such weights go at the rate of bf16: a CPU widens those of fp16.
constexpr bool multiplies_halves(DType weight, bool on_gpu) { return weight == DType::bf16 || (on_gpu && weight == DType::f16); }

/// The constants are two cores of an ordinary server with AVX2.
struct Calibration {
  double memory_bytes_per_s = 20e9;  // a[i] += s * b[i] in place, 12 bytes an element
  double copy_bytes_per_s = 15e9;    // past the caches, read and written bytes both counted
  double matmul_flops_f32 = 100e9;   // operations per second, 2 m n k of them a product
  double matmul_flops_bf16 = 100e9;
  double adam_ns_per_parameter = 1.4;  // f32 in place: 28 bytes a parameter
  int threads = 0;                     // the above were measured with; 0: they were not
  // Read and written by all ranks of a node together: for a sum N ranks read N wholes and write one, what is gathered N write whole.
  double reduce_scatter_bytes_per_s = 6e9;
  double all_gather_bytes_per_s = 6e9;
  bool ranks_measured = false;
  // Of the first GPU that can be used: products of large matrices, a copy in its memory (read and written bytes both counted), and copies
  // between it and page-locked host memory.
  double gpu_matmul_flops_f32 = 50e12, gpu_matmul_flops_bf16 = 500e12, gpu_copy_bytes_per_s = 2e12;
  double to_gpu_bytes_per_s = 20e9, from_gpu_bytes_per_s = 20e9;
  std::vector<DiskRates> disks;  // measured paths
  bool measured = false;         // anything is
  std::string warning;           // one line; empty when the file was good, or is not there

  /// Of the path itself, else of a measured path on the same filesystem, else the constants.
  DiskRates disk(const std::filesystem::path& path) const;
};

/// One figure of bench.
struct BenchRow {
  std::string name;  // "memory.axpy", "disk.read"
  std::string path;  // of disk rows: absolute
  double value = 0;
  std::string unit;               // "bytes/s", "FLOP/s", "ns/parameter"
  std::optional<double> ceiling;  // in the same unit
  int threads = 0;                // 0: their number is none of its matter
  double spread = 0;              // the middle look's time over the best one's, less 1: what else the node did meanwhile
  /// Of what the ceiling allows, 1 at the ceiling; for a time that is ceiling / value.
  std::optional<double> share() const;
};

std::filesystem::path calibration_file(const Host& host = {});
/// Never throws for what the file holds.
Calibration load_calibration(const Host& host = {});
/// Puts the rows in place of those of the same name and path, keeping the others. Error(io) when the file cannot be written.
void save_bench_rows(const std::vector<BenchRow>& rows, const Host& host = {});
/// Of rows that are to be saved, those more than half as far again from what is kept, a line each: was the node busy, or is it now?
std::vector<std::string> far_from_kept(const std::vector<BenchRow>& rows, const Host& host = {});
/// {"format", "host", "rows"}: what the file holds, and `bench --json` prints.
std::string bench_json(const std::vector<BenchRow>& rows);

}  // namespace spillway::app

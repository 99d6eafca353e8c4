// Holds the measured speeds of this node. `spillway bench` measures them and stores them per host in
// $XDG_CACHE_HOME/spillway/<host>.json (or in ~/.cache/spillway without that variable). The planner and the table of --profile use
// them. The defaults below stand for speeds that were not measured. The file is untrusted: a malformed or absurd value is replaced
// by its default, and `warning` says so. save_bench_rows() writes a new file and renames it; only one process may do so at a time.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/types.h"
#include "tensor/dtype.h"
#include "trainer/node/host.h"

namespace spillway::trainer {

constexpr int kBenchRanks = 2;  // number of ranks that `bench communicator` starts on this node

/// DiskRates holds the speeds of one scratch path, measured with sequential 1 MiB transfers
/// at the I/O engine's queue depth. The defaults are those of an ordinary NVMe drive.
struct DiskRates {
  std::string path;                   // absolute path; empty if it was not measured
  double read_bytes_per_s = 1.5e9;    // bytes per second if the disk only reads
  double write_bytes_per_s = 1.0e9;   // bytes per second if the disk only writes
  double mixed_bytes_per_s = 1.25e9;  // total rate when as many reads as writes run at once
  /// Returns how well reads and writes overlap: 1 if they share the disk's bandwidth, 2 if neither slows the other down.
  double duplex() const;
};

/// Returns whether matrix products with weights of this dtype run at the bf16 rate. On a CPU fp16 weights do not, because they are widened
/// to fp32 first.
constexpr bool multiplies_halves(DType weight, bool on_gpu) { return weight == DType::bf16 || (on_gpu && weight == DType::f16); }

/// Calibration holds the speeds of a node. The defaults are those of two cores of an ordinary server with AVX2.
struct Calibration {
  double memory_bytes_per_s = 20e9;  // rate of a[i] += s * b[i] in place, at 12 bytes per element
  double copy_bytes_per_s = 15e9;    // rate of copies that bypass the caches; bytes read and bytes written both count
  double matmul_flops_f32 = 100e9;   // operations per second; an m x n x k product counts as 2 m n k operations
  double matmul_flops_bf16 = 100e9;
  double adam_ns_per_parameter = 1.4;  // time to update one parameter in place by Adam in fp32, which reads and writes 28 bytes
  int threads = 0;                     // number of threads with which these speeds were measured; 0: nothing was measured
  // The next two values are the rates of collectives between the ranks of one node, which exchange data through memory. The bytes of all
  // ranks are added. A reduce-scatter of N ranks counts N + 1 arrays: N are read and one is written. An all-gather counts N arrays, one
  // written by each rank.
  double reduce_scatter_bytes_per_s = 6e9;
  double all_gather_bytes_per_s = 6e9;
  bool ranks_measured = false;
  // The next values are the rates of the first usable GPU: products of large matrices, a copy within the GPU's memory (bytes read and bytes
  // written are added), and copies between the GPU and page-locked host memory.
  double gpu_matmul_flops_f32 = 50e12, gpu_matmul_flops_bf16 = 500e12, gpu_copy_bytes_per_s = 2e12;
  double to_gpu_bytes_per_s = 20e9, from_gpu_bytes_per_s = 20e9;
  std::vector<DiskRates> disks;  // the paths that were measured
  bool measured = false;         // true if at least one value was measured
  std::string warning;           // one line; empty if the file is valid or does not exist

  /// Returns the speeds of `path` if it was measured, otherwise those of a measured path on the same filesystem, otherwise the defaults.
  DiskRates disk(const std::filesystem::path& path) const;
};

/// BenchRow is one result of `spillway bench`.
struct BenchRow {
  std::string name;  // name of the measurement, such as "memory.axpy" or "disk.read"
  std::string path;  // absolute path that was measured; empty except in rows of a disk
  double value = 0;
  std::string unit;               // unit of `value`, such as "bytes/s", "FLOP/s" or "ns/parameter"
  std::optional<double> ceiling;  // the best possible value, in the same unit
  int threads = 0;                // number of threads used; 0: it does not matter for this result
  double spread = 0;              // the median repetition's time / the best one's - 1
  std::optional<double> busy;     // set if the machine was busy (busy.h): the share of the processor time that the threads got
  /// Returns the share of the ceiling that was reached, 1 at the ceiling: value / ceiling for rates, ceiling / value for times.
  std::optional<double> share() const;
};

std::filesystem::path calibration_file(const Host& host = {});
/// Reads calibration_file(). Never throws, whatever the file contains.
Calibration load_calibration(const Host& host = {});
/// Saves the rows in the calibration file, in place of stored rows with the same name and path, and keeps all other stored rows. Rows that
/// were measured while the machine was busy are not saved. Throws Error(io) if the file cannot be written.
void save_bench_rows(const std::vector<BenchRow>& rows, const Host& host = {});
/// Returns a line for each row of `rows` that is at least 1.5 times slower or faster than the stored row of its name. Such a difference
/// means that something slowed the node down during one of the two measurements. Rows that will not be saved, because the machine was busy,
/// have no line. Must be called before save_bench_rows(), which overwrites the stored rows.
std::vector<std::string> far_from_kept(const std::vector<BenchRow>& rows, const Host& host = {});
/// Returns the JSON text {"format", "host", "rows"}. The calibration file holds this text, and `bench --json` prints it.
std::string bench_json(const std::vector<BenchRow>& rows);

}  // namespace spillway::trainer

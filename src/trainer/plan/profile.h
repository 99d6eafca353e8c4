// Profile sums up a run's steps. For each kind of instruction and executing thread (lane) it gives the busy milliseconds, and the bytes
// or FLOPs per second that were reached, next to the rate that `spillway bench` measured. On a CPU it gives the same for each op of the
// model's blocks. Lanes run concurrently, so the shares of a step may add up to more than 1. For use by one thread.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "parallel/run/rank.h"
#include "trainer/node/calibration.h"
#include "trainer/plan/cost_model.h"

namespace spillway::trainer {

struct ProfileRow {
  std::string kind, lane;    // kind of instruction and executing thread, such as "Fetch weights" and "load"
  std::string op = "";       // an op that the instruction runs, such as "conv2d"; empty for the sum over all ops
  double ms = 0, share = 0;  // mean milliseconds per step, and this time as a share of the step
  // bytes_per_s or flops_per_s: the rate while busy (one of the two is set); ceiling: the rate that `spillway bench` measured
  std::optional<double> bytes_per_s, flops_per_s, ceiling;
  // the operation whose measured rate is `ceiling`, such as "disk read" or "matmul"
  std::string ceiling_name;
};

class Profile {
 public:
  /// Adds the times of one step. Must be called after each step of the rank.
  void step(const parallel::Rank& rank, const nn::Sequential& model, double seconds);
  /// Returns the table in which the rank records the times of ops (StepSettings::op_times).
  parallel::OpTimesOf& op_times() { return ops_; }
  /// Returns the rows of the profile, longest first, each kind of instruction followed by its ops.
  /// `disks` holds the rates of each nvme path, and `shares` the share of the bytes that each path takes.
  std::vector<ProfileRow> rows(const Calibration& calibration, const std::vector<DiskRates>& disks, const std::vector<u32>& shares) const;

  struct Sum {
    double ms = 0;
    i64 disk_read_bytes = 0, disk_written_bytes = 0;
    i64 memory_bytes = 0;  // bytes of memory that updates and copies to and from host memory read and write
    bool copies = false;   // true if the bytes are copied, false if an update computes with them
    double flops = 0;      // FLOPs of matrix products
  };
  /// A function of type Flops returns the FLOPs of a block, as block_flops() does.
  using Flops = std::function<BlockFlops(u16 block)>;
  /// Adds the measured times of one list of instructions. Public only for tests.
  void add(
      const parallel::List& list, const std::vector<parallel::Timing>& timings, const parallel::Plan& plan,
      const Flops& flops = [](u16) { return BlockFlops{}; });

 private:
  bool on_gpu_ = false, halves_ = false;
  std::map<std::pair<std::string, std::string>, Sum> sums_;  // key: kind of instruction and lane
  parallel::OpTimesOf ops_;
  double seconds_ = 0;
  i64 steps_ = 0;
};

std::string to_text(const std::vector<ProfileRow>& rows, bool measured);

}  // namespace spillway::trainer

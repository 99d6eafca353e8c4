// Writes a trace of some steps for Perfetto (ui.perfetto.dev) or chrome://tracing. The trace has one row each
// for compute, load, store, optimizer and data as the executor ran them, rows for the disk's reads and writes as
// the kernel completed them, and counters of the bytes moved by tier. The file is written after the last traced
// step, entirely or not at all. The trainer owns the Trace; the threads of the I/O engine call DiskWatch.
#pragma once
#include <chrono>
#include <filesystem>
#include <map>
#include <mutex>
#include <vector>

#include "offload/system_calls.h"
#include "parallel/run/rank.h"
#include "trainer/ranks/peers.h"
#include "trainer/settings/config.h"

namespace spillway::trainer {

/// DiskWatch records when each disk transfer was submitted and when it completed. Thread-safe.
class DiskWatch final : public offload::SystemCalls {
 public:
  using Clock = std::chrono::steady_clock;
  struct Transfer {
    bool write = false;
    i64 bytes = 0;
    Clock::time_point begin, end;
  };

  i64 bytes_to_request(const offload::Transfer& transfer) override;
  i64 completed(const offload::Transfer& transfer, i64 result) override;
  /// Returns the transfers completed since the last call of take(), in order of completion.
  std::vector<Transfer> take();

 private:
  std::mutex mutex_;
  // when each pending transfer was submitted; key: descriptor, offset, write
  std::map<std::tuple<int, i64, bool>, Clock::time_point> begun_;
  std::vector<Transfer> done_;
};

class Trace {
 public:
  /// The first rank writes the events of all ranks; in the file each rank is one process.
  /// The ranks' clocks start with the first traced step, which all ranks begin together.
  Trace(std::filesystem::path path, StepRange steps, DiskWatch& watch, const Peers& peers)
      : path_(std::move(path)), steps_(steps), watch_(watch), peers_(peers) {}

  /// Must be called on all ranks after each step. Throws AgreedError(io) if the file cannot be written.
  void step(i64 step, const parallel::Rank& rank);

 private:
  using Clock = DiskWatch::Clock;
  double us(Clock::time_point t) const { return std::chrono::duration<double, std::micro>(t - zero_).count(); }
  void add_list(const parallel::List& list, const std::vector<parallel::Timing>& timings, Clock::time_point begin);
  void add_disk();
  void add_counter(double at_us, offload::Tier tier, i64 read_bytes, i64 written_bytes);
  std::string lanes() const;
  int process() const { return peers_.rank() + 1; }
  void write() const;

  const std::filesystem::path path_;
  const StepRange steps_;
  DiskWatch& watch_;
  const Peers& peers_;
  Clock::time_point zero_;
  std::vector<std::string> events_;
  parallel::TierBytes moved_;
};

}  // namespace spillway::trainer

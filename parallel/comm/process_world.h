// The state that all groups of one process share: the wire, and the only thread that touches it. That thread executes posted commands,
// reads letters, advances every group, copies and sums. It polls without pause while operations are in progress, and ever more rarely
// otherwise. post() is thread-safe; all other functions are for that thread. Internal; users see communicator_mpi_open.h.
#pragma once
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "parallel/comm/process_letter.h"
#include "parallel/comm/wire.h"

namespace spillway::parallel {

using Clock = std::chrono::steady_clock;

class ProcessGroup;

class ProcessWorld {
 public:
  ProcessWorld(std::unique_ptr<Wire> wire, double timeout_s);
  /// Called when all endpoints are destroyed in this process. Waits until they are destroyed in the other processes too, for the time-out
  /// but at least 10 s.
  ~ProcessWorld();
  ProcessWorld(const ProcessWorld&) = delete;
  ProcessWorld& operator=(const ProcessWorld&) = delete;

  void post(std::function<void()> command);
  /// Returns the group of all ranks.
  std::shared_ptr<ProcessGroup> whole() const { return whole_; }

  Wire& wire() { return *wire_; }
  void tell(int rank, const ProcessLetter& letter) { wire_->post(rank, letter.to_bytes()); }
  double timeout_s() const { return timeout_s_; }
  Clock::time_point last_heard(int rank) const { return last_heard_[static_cast<size_t>(rank)]; }
  /// Stops waiting for a rank that was silent for longer than the time-out.
  void give_up(int rank);
  const std::vector<i64>& silent() const { return silent_; }
  /// Records that this rank's user made a call.
  void called();
  /// Records that this rank's user does long work for which the others wait, until its next call.
  void works_alone();
  /// Returns true after an exception in this thread: all operations in progress have failed, and the wire is not touched any more.
  bool has_failed() const { return has_failed_; }

  /// Returns the offset of a free area of this rank's shared memory for a group's staging; -1 if none is free. An area has two cache lines
  /// for counters, which are 0, and two halves of kStagingBytes each.
  i64 take_area();
  void give_area_back(i64 area);
  static constexpr i64 kLineBytes = 64;
  static constexpr i64 kStagingBytes = 512 * kKiB;  // fits the second-level cache, and takes long compared with waiting for a flag
  static constexpr i64 kAreaBytes = 2 * kLineBytes + 2 * kStagingBytes;
  static constexpr i64 kAreas = 16;  // groups that a rank may be in at a time

  i64 next_group() const { return next_group_; }
  void groups_numbered_up_to(i64 next) { next_group_ = std::max(next_group_, next); }
  std::shared_ptr<ProcessGroup> add_group(i64 number, std::vector<int> ranks, std::vector<i64> areas);

 private:
  void run();
  bool turn();
  void fail(const std::string& how);
  void tell_of_failure(const std::string& how);
  void refuse_until_closed();
  bool run_commands();
  bool read_letters();
  void lose_the_gone();
  void lose(int rank, const std::string& how);
  void hear(int from, const std::function<ProcessLetter()>& letter);
  void deliver(int from, const ProcessLetter& letter);
  bool advance_groups();
  void look_after_time();
  bool may_close();
  void rest(bool moved);

  std::unique_ptr<Wire> wire_;
  const double timeout_s_;
  std::vector<Clock::time_point> last_heard_;
  std::map<int, std::string> gone_;  // ranks whose processes ended, and how
  std::vector<i64> silent_;          // ranks that are not waited for any more
  std::vector<i64> free_areas_;
  i64 next_group_ = 1;
  std::map<i64, std::shared_ptr<ProcessGroup>> groups_;
  std::map<i64, std::vector<std::pair<int, ProcessLetter>>> early_;  // letters for groups that do not exist here yet, by group number
  std::map<int, i64> early_bytes_;                                   // size of each sender's early letters
  std::shared_ptr<ProcessGroup> whole_;
  bool called_ = false, has_failed_ = false;
  int idle_ = 0;
  Clock::time_point next_look_{}, next_beat_{}, closing_until_{}, works_until_{}, last_turn_ = Clock::now();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::function<void()>> commands_;  // guarded by the mutex
  bool closing_ = false;                         // guarded by the mutex
  std::thread thread_;
};

}  // namespace spillway::parallel

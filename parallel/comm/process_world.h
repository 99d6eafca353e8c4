// A ProcessWorld is the state that all groups of one process share: the wire, and the only thread that uses it. That thread executes posted
// commands, reads letters, advances every group, copies data and sums it. While operations are in progress the thread polls without pause,
// otherwise less and less often. post() is thread-safe; all other functions are for that thread. Internal; users see
// communicator_mpi_open.h.
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
  /// Waits until the other processes have destroyed all their endpoints too, but no longer than the time-out or
  /// 10 s, whichever is longer. Runs when all endpoints in this process have been destroyed.
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
  /// Stops waiting for a rank that sent nothing for longer than the time-out.
  void give_up(int rank);
  const std::vector<i64>& silent() const { return silent_; }
  /// Records that the user of this rank's endpoints made a call.
  void called();
  /// Records that the user of this rank's endpoints does long work until the next call. The other ranks wait for it.
  void works_alone();
  /// Returns true if an exception has ended this thread's work. All operations in progress have then failed, and the wire is not used any
  /// more.
  bool has_failed() const { return has_failed_; }

  /// Takes a free area of this rank's shared memory for a group's staging buffers. Returns its offset, or -1 if no area is free. An area
  /// begins with two cache lines for counters, which are 0 at first. Two staging buffers of kStagingBytes each follow.
  i64 take_area();
  void give_area_back(i64 area);
  static constexpr i64 kLineBytes = 64;
  // The size of a staging buffer. The buffer fits the second-level cache, and copying this much takes long compared with waiting for a
  // flag.
  static constexpr i64 kStagingBytes = 512 * kKiB;
  static constexpr i64 kAreaBytes = 2 * kLineBytes + 2 * kStagingBytes;
  static constexpr i64 kAreas = 16;  // number of groups in which a rank may be at the same time

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
  std::map<int, std::string> gone_;  // ranks whose processes have ended, and how each ended
  std::vector<i64> silent_;          // ranks for which this rank does not wait any more
  std::vector<i64> free_areas_;
  i64 next_group_ = 1;
  std::map<i64, std::shared_ptr<ProcessGroup>> groups_;
  // Holds letters for groups that this rank has not created yet, by group number.
  std::map<i64, std::vector<std::pair<int, ProcessLetter>>> early_;
  std::map<int, i64> early_bytes_;  // bytes of the letters in early_ from each sender
  std::shared_ptr<ProcessGroup> whole_;
  bool called_ = false, has_failed_ = false;
  int idle_ = 0;
  Clock::time_point next_look_{}, next_beat_{}, closing_until_{}, works_until_{}, last_turn_ = Clock::now();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::function<void()>> commands_;  // commands posted by other threads; guarded by the mutex
  bool closing_ = false;                         // true once the destructor wants to close the world; guarded by the mutex
  std::thread thread_;
};

}  // namespace spillway::parallel

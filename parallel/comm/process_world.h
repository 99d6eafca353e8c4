// What all groups of a process's rank share: the wire, and the one thread that ever touches it. That thread carries commands out, reads
// letters, moves every group a step, copies and sums; it looks around without rest while something is under way, then ever more rarely.
// post() is thread-safe; the rest is for that thread. Not for users: see communicator_mpi_open.h.
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
  /// When all ends are destroyed here: waits until they are elsewhere too, for the time-out and no less than 10 s.
  ~ProcessWorld();
  ProcessWorld(const ProcessWorld&) = delete;
  ProcessWorld& operator=(const ProcessWorld&) = delete;

  void post(std::function<void()> command);
  /// The group of all.
  std::shared_ptr<ProcessGroup> whole() const { return whole_; }

  Wire& wire() { return *wire_; }
  void tell(int rank, const ProcessLetter& letter) { wire_->post(rank, letter.to_bytes()); }
  double timeout_s() const { return timeout_s_; }
  Clock::time_point last_heard(int rank) const { return last_heard_[static_cast<size_t>(rank)]; }
  /// It was silent for longer than the time-out: nobody waits for it any more.
  void give_up(int rank);
  const std::vector<i64>& silent() const { return silent_; }
  /// This rank's user called something.
  void called();
  /// It will call something after work for which the others wait.
  void works_alone();
  /// Something was thrown here: all that was under way has failed, and the wire is not touched any more.
  bool has_failed() const { return has_failed_; }

  /// A piece of this rank's shared memory for a group's staging: two lines for counters, which are 0, and two halves of kStagingBytes. -1
  /// when there is none left.
  i64 take_area();
  void give_area_back(i64 area);
  static constexpr i64 kLineBytes = 64;
  static constexpr i64 kStagingBytes = 512 * kKiB;  // stays in the second-level cache on its way; long beside the wait for a flag
  static constexpr i64 kAreaBytes = 2 * kLineBytes + 2 * kStagingBytes;
  static constexpr i64 kAreas = 16;  // groups of one rank at a time

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
  std::map<int, std::string> gone_;  // how, by rank
  std::vector<i64> silent_;          // ranks given up
  std::vector<i64> free_areas_;
  i64 next_group_ = 1;
  std::map<i64, std::shared_ptr<ProcessGroup>> groups_;
  std::map<i64, std::vector<std::pair<int, ProcessLetter>>> early_;  // for groups that are not yet made here, by number
  std::map<int, i64> early_bytes_;                                   // by sender
  std::shared_ptr<ProcessGroup> whole_;
  bool called_ = false, has_failed_ = false;
  int idle_ = 0;
  Clock::time_point next_look_{}, next_beat_{}, closing_until_{}, works_until_{}, last_turn_ = Clock::now();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::function<void()>> commands_;  // the mutex's
  bool closing_ = false;                         // the mutex's
  std::thread thread_;
};

}  // namespace spillway::parallel

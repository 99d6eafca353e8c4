#include "parallel/comm/process_world.h"

#include <algorithm>
#include <exception>
#include <numeric>

#include "base/error.h"
#include "base/thread.h"
#include "parallel/comm/process_group.h"

namespace spillway::parallel {
namespace {

constexpr double kShortestClosing_s = 10;
constexpr i64 kMostEarlyBytes = 64 * kMiB;
constexpr int kTriesToTell = 1000;
constexpr int kSpinsOfRank = 200, kYields = 2000;

Clock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(std::min(seconds, 1e8)));
}

}  // namespace

ProcessWorld::ProcessWorld(std::unique_ptr<Wire> wire, double timeout_s)
    : wire_(std::move(wire)), timeout_s_(timeout_s), last_heard_(static_cast<size_t>(wire_->size()), Clock::now()) {
  // the first area is not free: it belongs to the group of all ranks
  for (i64 k = kAreas - 1; k > 0; --k) free_areas_.push_back(k * kAreaBytes);
  std::vector<int> all(static_cast<size_t>(wire_->size()));
  std::iota(all.begin(), all.end(), 0);
  whole_ = add_group(0, all, std::vector<i64>(all.size(), 0));
  thread_ = start_thread([this] { run(); });
}

ProcessWorld::~ProcessWorld() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void ProcessWorld::post(std::function<void()> command) {
  {
    const std::lock_guard lock(mutex_);
    commands_.push_back(std::move(command));
  }
  wake_.notify_all();
}

i64 ProcessWorld::take_area() {
  if (free_areas_.empty()) return -1;
  const i64 area = free_areas_.back();
  free_areas_.pop_back();
  return area;
}

// Frees an area whose group all members have left. Its counters are set to 0 for the next group that uses it.
void ProcessWorld::give_area_back(i64 area) {
  const std::span<std::byte> memory = wire_->memory_of(wire_->rank());
  std::fill_n(memory.begin() + area, 2 * kLineBytes, std::byte{});
  free_areas_.push_back(area);
}

std::shared_ptr<ProcessGroup> ProcessWorld::add_group(i64 number, std::vector<int> ranks, std::vector<i64> areas) {
  auto group = std::make_shared<ProcessGroup>(*this, number, std::move(ranks), std::move(areas));
  groups_.emplace(number, group);
  for (const auto& [rank, how] : gone_) group->lose(rank, how);
  const auto early = early_.extract(number);
  for (size_t k = 0; early && k < early.mapped().size(); ++k) {
    const auto& [from, letter] = early.mapped()[k];
    early_bytes_[from] -= letter.bytes();
    hear(from, [&] { return letter; });
  }
  return group;
}

// Runs the work of the world's thread. An exception in it ends this rank's communication, but not
// the process: every later call fails with the exception's message.
void ProcessWorld::run() {
  try {
    while (!turn()) continue;
    return;
  } catch (const std::exception& e) {
    fail(e.what());
  } catch (...) {
    fail("an unknown exception was thrown");
  }
  refuse_until_closed();
}

// Does everything that there is to do at the moment: runs commands, reads messages, advances all groups. Returns true when the world is
// closed.
bool ProcessWorld::turn() {
  bool moved = run_commands();
  moved |= read_letters();
  lose_the_gone();
  moved |= advance_groups();
  look_after_time();
  if (may_close()) return true;
  rest(moved);
  return false;
}

// Fails all groups. Their buffers then belong to their owners again, so no more data may move, and the wire is no longer used.
void ProcessWorld::fail(const std::string& what) {
  const std::string how = "this rank's communicator failed: " + what;
  tell_of_failure(how);
  has_failed_ = true;
  for (const auto& [number, group] : groups_) group->fail(how);
}

// Tells the other ranks that this rank has failed. If the wire itself has failed, the others notice it when this rank's process ends.
void ProcessWorld::tell_of_failure(const std::string& how) {
  try {
    for (const auto& [number, group] : groups_) group->give_up(how);
    for (int k = 0; k < kTriesToTell && !wire_->all_posted(); ++k) wire_->next_letter();
  } catch (...) {
  }
}

void ProcessWorld::refuse_until_closed() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return closing_ || !commands_.empty(); });
    if (commands_.empty()) return;
    const auto commands = std::exchange(commands_, {});
    lock.unlock();
    for (const auto& command : commands) try {
        command();
      } catch (...) {  // the command itself has reported the error through its event
      }
    lock.lock();
  }
}

bool ProcessWorld::run_commands() {
  std::vector<std::function<void()>> commands;
  {
    const std::lock_guard lock(mutex_);
    commands.swap(commands_);
  }
  std::exception_ptr first;
  for (const auto& command : commands) try {
      command();
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  if (first) std::rethrow_exception(first);
  return !commands.empty();
}

bool ProcessWorld::read_letters() {
  bool any = false;
  while (const auto letter = wire_->next_letter()) {
    last_heard_[static_cast<size_t>(letter->from)] = Clock::now();
    any = true;
    if (!gone_.contains(letter->from)) hear(letter->from, [&] { return ProcessLetter::of(letter->bytes); });
  }
  return any;
}

// Handles a letter. If the letter is invalid, this rank stops waiting for the letter's sender.
void ProcessWorld::hear(int from, const std::function<ProcessLetter()>& letter) {
  try {
    deliver(from, letter());
  } catch (const Error& e) {
    if (e.code() != ErrorCode::peer) throw;
    give_up(from);
    wire_->give_up(from);
    lose(from, e.what());
  }
}

void ProcessWorld::lose_the_gone() {
  for (const Wire::Gone& one : wire_->gone()) lose(one.rank, one.how);
  for (const i64 one : silent_) {
    const int rank = static_cast<int>(one);
    if (!gone_.contains(rank) && wire_->give_up(rank)) lose(rank, "it sent nothing for longer than the timeout");
  }
}

void ProcessWorld::give_up(int rank) {
  const bool known = std::find(silent_.begin(), silent_.end(), rank) != silent_.end();
  if (rank != wire_->rank() && !known) silent_.push_back(rank);
}

void ProcessWorld::called() {
  called_ = true;
  works_until_ = {};
}

void ProcessWorld::works_alone() { works_until_ = Clock::now() + duration_of(kLongestWork * timeout_s_); }

void ProcessWorld::lose(int rank, const std::string& how) {
  for (const auto& [number, group] : groups_) group->lose(rank, how);
  gone_.emplace(rank, how);
}

void ProcessWorld::deliver(int from, const ProcessLetter& letter) {
  if (letter.kind == ProcessLetter::Kind::alive) return;
  const auto group = groups_.find(letter.group);
  if (group != groups_.end()) return group->second->read(from, letter);
  if (letter.group < next_group_) return;
  if ((early_bytes_[from] += letter.bytes()) > kMostEarlyBytes)
    throw Error(ErrorCode::peer,
                "[communicator] expected at most 64 MiB of messages from a rank for groups that do not exist here yet, got more");
  early_[letter.group].emplace_back(from, letter);
}

bool ProcessWorld::advance_groups() {
  bool moved = false;
  std::vector<std::shared_ptr<ProcessGroup>> groups;  // a copy of the list, since advance() may add a group to the original
  for (const auto& [number, group] : groups_) groups.push_back(group);
  for (const auto& group : groups) moved |= group->advance();
  std::erase_if(groups_, [&](const auto& entry) {
    if (!entry.second->is_over()) return false;
    give_area_back(entry.second->area());
    return true;
  });
  return moved;
}

// Several times per time-out, checks for late members. Also sends a sign of life to all ranks if this rank made a call or its operations
// progress.
void ProcessWorld::look_after_time() {
  const Clock::time_point now = Clock::now();
  // If this thread itself was suspended, it cannot tell who is late, so all ranks count as having called just now.
  if (now - std::exchange(last_turn_, now) > duration_of(timeout_s_ / 2)) std::fill(last_heard_.begin(), last_heard_.end(), now);
  if (now < next_look_) return;
  next_look_ = now + duration_of(timeout_s_ / 20);
  for (const auto& [number, group] : groups_) {
    group->check(now);
    called_ |= group->is_moving();  // a rank whose operations make progress counts as alive, however long they take
  }
  called_ |= now < works_until_;
  if (!called_ || now < next_beat_) return;
  next_beat_ = now + duration_of(timeout_s_ / 4);
  called_ = false;
  for (int r = 0; r < wire_->size(); ++r) {
    if (r != wire_->rank()) tell(r, {});
  }
}

bool ProcessWorld::may_close() {
  {
    const std::lock_guard lock(mutex_);
    if (!closing_ || !commands_.empty()) return false;
  }
  if (closing_until_ == Clock::time_point{}) closing_until_ = Clock::now() + duration_of(std::max(timeout_s_, kShortestClosing_s));
  if (groups_.empty() && wire_->all_posted()) {
    wire_->close();
    return true;
  }
  return Clock::now() > closing_until_;
}

void ProcessWorld::rest(bool moved) {
  idle_ = moved ? 0 : idle_ + 1;
  if (idle_ < kSpinsOfRank) return;
  if (idle_ < kYields) return std::this_thread::yield();
  const bool waiting = std::any_of(groups_.begin(), groups_.end(), [](const auto& entry) { return entry.second->is_waiting(); });
  std::unique_lock lock(mutex_);
  const auto called = [&] { return !commands_.empty(); };
  if (wake_.wait_for(lock, std::chrono::microseconds(waiting || closing_ ? 100 : 2000), called)) idle_ = 0;
}

}  // namespace spillway::parallel

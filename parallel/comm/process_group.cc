#include "parallel/comm/process_group.h"

#include <algorithm>

namespace spillway::parallel {
namespace {

int place_of(int world_rank, const std::vector<int>& world_ranks) {
  return static_cast<int>(std::find(world_ranks.begin(), world_ranks.end(), world_rank) - world_ranks.begin());
}

}  // namespace

ProcessGroup::ProcessGroup(ProcessWorld& world, i64 number, std::vector<int> world_ranks, std::vector<i64> areas)
    : world_(world),
      number_(number),
      names_(world_ranks, world.wire().size()),
      areas_(std::move(areas)),
      rank_(place_of(world.wire().rank(), world_ranks)),
      came_(world_ranks.size()),
      left_(world_ranks.size()),
      stops_(world_ranks.size()) {}

void ProcessGroup::tell_others(ProcessLetter letter) {
  letter.group = number_;
  for (int r = 0; r < size(); ++r) {
    if (r != rank_) world_.tell(names_.world_rank(r), letter);
  }
}

void ProcessGroup::call(Call call, Event event, Split split) {
  if (refuses(std::string(to_string(call.what)), event)) return;
  world_.called();
  ComingCall coming{call, world_.next_group(), call.what == Collective::split ? world_.take_area() : -1};
  tell_others({.kind = ProcessLetter::Kind::came, .a = calls_, .words = coming.to_words()});
  auto& all = coming_[calls_];
  all.resize(static_cast<size_t>(size()));
  all[static_cast<size_t>(rank_)] = std::move(coming);
  queue_.push_back({std::move(call), std::move(event), std::move(split), calls_++});
}

void ProcessGroup::impossible(const char* what) {
  throw Error(ErrorCode::peer, std::string("[communicator] expected a valid message from each rank, got ") + what);
}

// Records a member's call, which must be the next one in that member's order. The call of a split names an area of shared memory; the
// area at offset 0 belongs to the group of all ranks, so naming it is invalid.
void ProcessGroup::came(int from, const ProcessLetter& letter) {
  constexpr i64 kEach = ProcessWorld::kAreaBytes, kEnd = ProcessWorld::kAreas * kEach;
  const auto member = static_cast<size_t>(from);
  ComingCall coming = ComingCall::of(letter.words);
  if (letter.a != came_[member]) impossible("a call out of order");
  if (coming.area != -1 && (coming.area < kEach || coming.area >= kEnd || coming.area % kEach != 0))
    impossible("a staging area outside of the shared memory");
  ++came_[member];
  auto& all = coming_[letter.a];
  all.resize(static_cast<size_t>(size()));
  all[member] = std::move(coming);
}

void ProcessGroup::read(int world_rank, const ProcessLetter& letter) {
  int from = 0;
  while (from < size() && names_.world_rank(from) != world_rank) ++from;
  if (from == size()) impossible("one for a group to which the sender does not belong");
  switch (letter.kind) {
    case ProcessLetter::Kind::came:
      came(from, letter);
      break;
    case ProcessLetter::Kind::offers:
      if (letter.a != static_cast<int>(letter.a) || letter.b < 0) impossible("one with an invalid tag or size");
      offers_to_me_[{from, static_cast<int>(letter.a)}].push_back({letter.b, letter.c});
      break;
    case ProcessLetter::Kind::takes:
      taken(from, letter.a, letter.b);
      break;
    case ProcessLetter::Kind::left:
      left_[static_cast<size_t>(from)] = true;
      stops_[static_cast<size_t>(from)] = letter.a;
      break;
    case ProcessLetter::Kind::broken:
      stops_[static_cast<size_t>(from)] = letter.a;
      for (const i64 silent : letter.words) {
        if (silent >= 0 && silent < world_.wire().size()) world_.give_up(static_cast<int>(silent));
      }
      break_up(letter.text);
      break;
    case ProcessLetter::Kind::alive:
      break;
  }
}

bool ProcessGroup::advance() {
  bool moved = false;
  while (advance_collective()) moved = true;
  moved |= advance_messages();
  may_leave();
  return moved;
}

bool ProcessGroup::advance_collective() {
  if (queue_.empty()) return false;
  if (!running_) return begin();
  Running& run = *running_;
  if (run.index == run.exchanges.count()) {
    finish();
    return true;
  }
  if (const std::vector<int> others = run.published ? lacking() : slow_readers(); !others.empty()) {
    fail_if_stopped(others);
    return false;
  }
  run.published ? collect() : publish();
  return true;
}

std::vector<int> ProcessGroup::missing_at(const Operation& op) const {
  std::vector<int> missing;
  const auto& all = coming_.at(op.number);
  for (int r = 0; r < size(); ++r) {
    if (!all[static_cast<size_t>(r)]) missing.push_back(r);
  }
  return missing;
}

bool ProcessGroup::begin() {
  Operation& op = queue_.front();
  if (const std::vector<int> missing = missing_at(op); !missing.empty()) {
    break_if_gone(missing);
    return false;
  }
  std::vector<ComingCall> coming;
  std::vector<Call> calls;
  for (const auto& one : coming_.at(op.number)) coming.push_back(*one), calls.push_back(one->call);
  coming_.erase(op.number);
  std::string wrong = disagreement(calls);
  if (wrong.empty() && op.call.what == Collective::split) {
    if (std::shared_ptr<ProcessGroup> group = make_group(coming)) {
      op.split(std::move(group));
    } else {
      wrong =
          "expected every rank to have shared memory for one more group, got a rank that has none left: destroy a group that is no longer "
          "used";
    }
  }
  if (!wrong.empty()) {
    op.event.fail(bug_error(std::string(to_string(op.call.what)), wrong));
    queue_.pop_front();
    return true;
  }
  running_.emplace(Running{Exchanges(op.call, rank_, size(), ProcessWorld::kStagingBytes)});
  return true;
}

void ProcessGroup::finish() {
  queue_.front().event.set();
  queue_.pop_front();
  running_.reset();
}

// Returns the new group for this member's color, or null if some member has no shared memory left for a new group. All members compute
// the same group numbers: the groups are numbered in order of color, from the first number that no member has used.
std::shared_ptr<ProcessGroup> ProcessGroup::make_group(const std::vector<ComingCall>& calls) {
  i64 next = 0;
  std::map<int, std::vector<int>> members;
  bool room = true;
  for (int r = 0; r < size(); ++r) {
    const ComingCall& coming = calls[static_cast<size_t>(r)];
    next = std::max(next, coming.next_group);
    members[coming.call.color].push_back(r);
    room &= coming.area >= 0;
  }
  const ComingCall& mine = calls[static_cast<size_t>(rank_)];
  world_.groups_numbered_up_to(next + std::ssize(members));
  if (!room) {
    if (mine.area >= 0) world_.give_area_back(mine.area);
    return nullptr;
  }
  std::vector<int> world_ranks;
  std::vector<i64> areas;
  for (const int r : members[mine.call.color]) {
    world_ranks.push_back(names_.world_rank(r));
    areas.push_back(calls[static_cast<size_t>(r)].area);
  }
  const auto number = next + std::distance(members.begin(), members.find(mine.call.color));
  auto group = world_.add_group(number, std::move(world_ranks), std::move(areas));
  children_.push_back(group);
  return group;
}

}  // namespace spillway::parallel

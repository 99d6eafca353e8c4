// Runs one exchange of a collective. First this member copies its data for members on the same node into its staging buffer (shared memory)
// and sends its data to members on other nodes. Then it collects what the other members give.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "device/copy.h"
#include "parallel/comm/process_group.h"
#include "parallel/comm/transfer.h"

namespace spillway::parallel {

// Describes a member's area of shared memory. The area begins with two counters: how many exchanges the owner of the area has published,
// and from how many exchanges the owner has taken all data. Two staging buffers follow. The n-th exchange uses buffer n mod 2. The n-th
// exchange may begin once all members have taken all data of exchange n - 2, which used the same buffer.
struct ProcessGroup::Staging {
  std::byte* area;

  std::atomic_ref<u64> published() const { return std::atomic_ref(*reinterpret_cast<u64*>(area)); }
  std::atomic_ref<u64> taken() const { return std::atomic_ref(*reinterpret_cast<u64*>(area + ProcessWorld::kLineBytes)); }
  std::byte* half(i64 exchange) const { return area + 2 * ProcessWorld::kLineBytes + exchange % 2 * ProcessWorld::kStagingBytes; }
};

ProcessGroup::Staging ProcessGroup::staging(int member) const {
  return {world_.wire().memory_of(names_.world_rank(member)).data() + areas_[static_cast<size_t>(member)]};
}

bool ProcessGroup::is_near(int member) const { return !world_.wire().memory_of(names_.world_rank(member)).empty(); }

// Returns the members that have not yet taken all data from the staging buffer that this member wants to use next.
std::vector<int> ProcessGroup::slow_readers() const {
  std::vector<int> members;
  for (int r = 0; r < size(); ++r) {
    const bool reads = r != rank_ && is_near(r);
    if (reads && static_cast<i64>(staging(r).taken().load(std::memory_order_acquire)) < exchanges_ - 1) members.push_back(r);
  }
  return members;
}

void ProcessGroup::publish() {
  Running& run = *running_;
  run.now = run.exchanges.at(run.index);
  run.operands.resize(static_cast<size_t>(size()));
  Exchange::Given last;
  for (int r = 0; r < size(); ++r) {
    const auto member = static_cast<size_t>(r);
    const Exchange::Given& given = run.now.gives[member];
    Exchange::Gotten& gotten = run.now.gets[member];
    if (r == rank_) continue;
    if (given.bytes > 0) give(r, given, last), last = is_near(r) ? given : last;
    if (gotten.bytes == 0 || is_near(r)) continue;
    if (!gotten.to) run.operands[member].resize(static_cast<size_t>(gotten.bytes));
    std::byte* to = gotten.to ? gotten.to : run.operands[member].data();
    run.traveling.push_back(
        {r, world_.wire().receive(Wire::Channel::collective, {to, static_cast<size_t>(gotten.bytes)}, names_.world_rank(r), tag())});
  }
  staging(rank_).published().store(static_cast<u64>(exchanges_ + 1), std::memory_order_release);
  run.published = true;
  run.since = Clock::now();
}

// Makes bytes available to a member. `last` describes the bytes that were put into the staging buffer before. If several members get the
// same bytes, these are copied into the buffer only once.
void ProcessGroup::give(int member, const Exchange::Given& given, const Exchange::Given& last) {
  if (is_near(member)) {
    if (given.from == last.from && given.at == last.at) return;
    std::memcpy(staging(rank_).half(exchanges_) + given.at, given.from, static_cast<size_t>(given.bytes));
  } else {
    const std::span<const std::byte> bytes(given.from, static_cast<size_t>(given.bytes));
    running_->traveling.push_back({member, world_.wire().send(Wire::Channel::collective, bytes, names_.world_rank(member), tag())});
  }
}

// Returns the members whose bytes this member still lacks on this node, and those on other nodes with a send or receive in progress.
std::vector<int> ProcessGroup::lacking() {
  Running& run = *running_;
  std::vector<int> members;
  for (int r = 0; r < size(); ++r) {
    const bool needed = r != rank_ && run.now.gets[static_cast<size_t>(r)].bytes > 0 && is_near(r);
    if (needed && static_cast<i64>(staging(r).published().load(std::memory_order_acquire)) <= exchanges_) members.push_back(r);
  }
  std::erase_if(run.traveling, [&](const Traveling& one) { return world_.wire().is_done(one.ticket); });
  for (const Traveling& one : run.traveling) members.push_back(one.peer);
  return members;
}

void ProcessGroup::collect() {
  Running& run = *running_;
  for (int r = 0; r < size() && !run.now.result; ++r) {
    const Exchange::Gotten& gotten = run.now.gets[static_cast<size_t>(r)];
    if (gotten.bytes == 0 || (r != rank_ && !is_near(r))) continue;
    const std::byte* from = r == rank_ ? run.now.gives[static_cast<size_t>(r)].from : staging(r).half(exchanges_) + gotten.at;
    if (from == gotten.to) continue;
    const bool large = std::ssize(queue_.front().call.gets) >= kPastCachesBytes;
    large ? copy_past_caches(gotten.to, from, gotten.bytes) : void(std::memcpy(gotten.to, from, static_cast<size_t>(gotten.bytes)));
  }
  if (run.now.result && run.now.result_elems > 0) reduce();
  ++exchanges_;
  staging(rank_).taken().store(static_cast<u64>(exchanges_), std::memory_order_release);
  ++run.index;
  run.published = false;
}

void ProcessGroup::reduce() {
  Running& run = *running_;
  const Call& call = queue_.front().call;
  Transfer sum{{}, {run.now.result}, run.now.result_elems, call.dtype, call.reduction};
  for (int r = 0; r < size(); ++r) {
    const auto member = static_cast<size_t>(r);
    if (r == rank_) {
      sum.from.push_back(run.now.gives[member].from);
    } else {
      sum.from.push_back(is_near(r) ? staging(r).half(exchanges_) + run.now.gets[member].at : run.operands[member].data());
    }
  }
  const bool in_place = sum.from[static_cast<size_t>(rank_)] == sum.to[0];
  if (size() == 1 && in_place) return;
  const bool large = std::ssize(call.gets) >= kPastCachesBytes;
  carry_out(sum, 0, sum.elems, large && !in_place ? Stores::past_caches : Stores::cached);
}

}  // namespace spillway::parallel

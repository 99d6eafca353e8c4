#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "parallel/program/meetings.h"
#include "parallel/proof/check.h"

namespace spillway::parallel {
namespace {

std::string name_of(const Instruction& i) {
  std::string text = fmt::format("{} {}", to_string(i.op), to_string(i.what));
  if (i.block != kNone) text += fmt::format(" block {}", i.block);
  if (i.group != kNone) text += fmt::format(" group {} use {}", i.group, i.use);
  if (i.micro_batch != kNone) text += fmt::format(" micro-batch {}", i.micro_batch);
  if (i.peer != kNone) text += fmt::format(" {} rank {}", sends(i.op) ? "to" : "from", i.peer);
  return text;
}

// One list of every rank, run side by side.
class Together {
 public:
  Together(std::vector<const List*> lists, const Mesh& mesh) : lists_(std::move(lists)), mesh_(mesh), ranks_(lists_.size()) {
    for (size_t r = 0; r < lists_.size(); ++r) {
      ranks_[r].done.resize(lists_[r]->size());
      for (u32 i = 0; i < lists_[r]->size(); ++i) ranks_[r].lanes[static_cast<size_t>((*lists_[r])[i].lane)].push_back(i);
    }
  }

  void run() {
    while (advance()) {
    }
    if (!ended()) refuse_standstill();
  }

 private:
  struct Rank {
    std::vector<char> done;
    std::array<std::vector<u32>, kLanes> lanes;
    std::array<size_t, kLanes> next{};
  };

  // What a lane has come to: its next instruction, if what that waits for is done.
  const Instruction* at(size_t rank, size_t lane) const {
    const Rank& r = ranks_[rank];
    if (r.next[lane] == r.lanes[lane].size()) return nullptr;
    const Instruction& i = (*lists_[rank])[r.lanes[lane][r.next[lane]]];
    return std::all_of(i.after.begin(), i.after.end(), [&](u32 a) { return r.done[a]; }) ? &i : nullptr;
  }

  void pass(size_t rank, size_t lane) {
    Rank& r = ranks_[rank];
    r.done[r.lanes[lane][r.next[lane]++]] = 1;
  }

  bool advance() {
    bool moved = false;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      for (size_t l = 0; l < kLanes; ++l) {
        while (const Instruction* i = at(r, l)) {
          if (!try_pass(r, l, *i)) break;
          moved = true;
        }
      }
    }
    return moved;
  }

  bool try_pass(size_t rank, size_t lane, const Instruction& i) {
    switch (meeting_of(i.op)) {
      case Meeting::none:
        pass(rank, lane);
        return true;
      case Meeting::message:
        return sends(i.op) && deliver(rank, lane, i);
      case Meeting::data_ranks:
        return meet(lane, i, [&](size_t other) { return pipeline_rank(other) == pipeline_rank(rank); });
      case Meeting::everybody:
        return meet(lane, i, [](size_t) { return true; });
    }
    return false;
  }

  template <class Member>
  bool meet(size_t lane, const Instruction& i, const Member& member) {
    for (size_t r = 0; r < ranks_.size(); ++r) {
      if (!member(r)) continue;
      const Instruction* other = at(r, lane);
      if (!other || other->op != i.op) return false;
    }
    for (size_t r = 0; r < ranks_.size(); ++r) {
      if (member(r)) pass(r, lane);
    }
    return true;
  }

  // Messages of a kind between two ranks are matched in the order in which they are sent and received.
  bool deliver(size_t rank, size_t lane, const Instruction& send) {
    const auto to = static_cast<size_t>(mesh_.world_rank(mesh_.data_rank(static_cast<int>(rank)), send.peer));
    for (size_t l = 0; l < kLanes; ++l) {
      const Instruction* receive = at(to, l);
      if (!receive || !receives(receive->op) || receive->peer != pipeline_rank(rank) || receive->what != send.what) continue;
      const bool same = std::tuple(send.block, send.group, send.use, send.micro_batch, send.in.bytes, send.tiles) ==
                        std::tuple(receive->block, receive->group, receive->use, receive->micro_batch, receive->out.bytes, receive->tiles);
      if (!same)
        throw Error(ErrorCode::bug, fmt::format("[check] rank {} comes to {} ({} bytes), rank {} to {} ({} bytes)", rank, name_of(send),
                                                send.in.bytes, to, name_of(*receive), receive->out.bytes));
      pass(rank, lane);
      pass(to, l);
      return true;
    }
    return false;
  }

  u16 pipeline_rank(size_t world) const { return static_cast<u16>(mesh_.pipeline_rank(static_cast<int>(world))); }

  bool ended() const {
    return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return std::ranges::count(r.done, 0) == 0; });
  }

  [[noreturn]] void refuse_standstill() const {
    std::string text;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      for (size_t l = 0; l < kLanes; ++l) {
        if (const Instruction* i = at(r, l)) text += fmt::format("{} rank {} at {}", text.empty() ? "" : ",", r, name_of(*i));
      }
    }
    throw Error(ErrorCode::bug,
                fmt::format("[check] the ranks would wait for each other forever:{}", text.empty() ? " nobody starts" : text));
  }

  const std::vector<const List*> lists_;
  const Mesh mesh_;
  std::vector<Rank> ranks_;
};

}  // namespace

void check_together(std::span<const Program* const> world, const Mesh& mesh) {
  require(std::ssize(world) == mesh.size(), "[check] a Program for each rank of the mesh");
  for (const auto list : {&Program::head, &Program::commit, &Program::redo, &Program::skip, &Program::deferred}) {
    std::vector<const List*> lists;
    for (const Program* program : world) lists.push_back(&(program->*list));
    Together(std::move(lists), mesh).run();
  }
}

}  // namespace spillway::parallel

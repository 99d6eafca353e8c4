// Walks one list of every rank of a world at the same time, as the ranks' executors would: each lane (sequence of instructions of one kind)
// is a FIFO, `after` is obeyed, and each message and collective waits for all ranks that take part in it. The caller decides when an
// instruction that has begun ends: the checker ends it at once, the simulator when its time is over. Used by one thread.
#pragma once
#include <optional>
#include <span>

#include "parallel/comm/rank_mesh.h"
#include "parallel/program/program.h"

namespace spillway::parallel {

class WorldWalk {
 public:
  /// Names one lane (sequence of instructions of one kind) of one rank.
  struct Place {
    size_t rank, lane;
  };

  /// Makes a walk over `lists`, which is indexed by world rank and must outlive the walk. Without a mesh, each rank is alone and waits
  /// for nobody.
  WorldWalk(std::span<const List* const> lists, std::optional<Mesh> mesh);

  size_t ranks() const { return ranks_.size(); }
  /// Returns the lane's next instruction if everything that it waits for is done. Returns null if something is not done, if another
  /// instruction of the lane is in progress, or if the lane has ended.
  const Instruction* at(Place place) const;
  /// Returns the lanes, including this one, that take part in the message or collective which this lane has reached. Returns none if one
  /// of them has not arrived yet. A message is found only from its sender's lane, which comes first in the result. Messages of one kind
  /// between two ranks match in the order in which they are sent and received.
  std::vector<Place> party(Place place) const;
  /// Begins the lane's next instruction and returns its index in the rank's list.
  u32 begin(Place place);
  void end(Place place);
  /// Returns true if all lists have ended.
  bool ended() const;

 private:
  struct Rank {
    const List* list = nullptr;
    std::vector<char> done;
    std::array<std::vector<u32>, kLanes> lanes;
    std::array<size_t, kLanes> next{};
    std::array<bool, kLanes> under_way{};  // for each lane: true if the instruction at `next` is in progress
  };
  std::vector<Place> with_receiver(Place sender, const Instruction& send) const;
  u16 pipeline_rank(size_t world) const { return static_cast<u16>(mesh_->pipeline_rank(static_cast<int>(world))); }

  const std::optional<Mesh> mesh_;
  std::vector<Rank> ranks_;
};

}  // namespace spillway::parallel

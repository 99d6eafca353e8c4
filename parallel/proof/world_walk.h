// Walks one list of every rank of a world concurrently, as their executors would: one FIFO per lane, `after`, and each message and
// collective waiting for all its sides. The caller decides when work that was begun has ended: the checker at once, the simulator when its
// time is over. For one thread.
#pragma once
#include <optional>
#include <span>

#include "parallel/comm/rank_mesh.h"
#include "parallel/program/program.h"

namespace spillway::parallel {

class WorldWalk {
 public:
  /// One lane of one rank.
  struct Place {
    size_t rank, lane;
  };

  /// `lists` is by world rank; the lists must outlive the walk. Without a mesh a rank is alone and waits for nobody.
  WorldWalk(std::span<const List* const> lists, std::optional<Mesh> mesh);

  size_t ranks() const { return ranks_.size(); }
  /// Returns the lane's next instruction if all that it waits for is done. Null if it is not, or if another instruction of the lane is in
  /// progress.
  const Instruction* at(Place place) const;
  /// Returns the lanes, this one included, that together begin the instruction that this lane has reached; empty if one of them has not
  /// arrived. A message is begun through its sender, which is listed first; messages of one kind between two ranks match in the order in
  /// which they are sent and received.
  std::vector<Place> party(Place place) const;
  /// Returns the instruction's number in its list.
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
    std::array<bool, kLanes> under_way{};  // for each lane: the instruction at `next` is in progress
  };
  std::vector<Place> with_receiver(Place sender, const Instruction& send) const;
  u16 pipeline_rank(size_t world) const { return static_cast<u16>(mesh_->pipeline_rank(static_cast<int>(world))); }

  const std::optional<Mesh> mesh_;
  std::vector<Rank> ranks_;
};

}  // namespace spillway::parallel

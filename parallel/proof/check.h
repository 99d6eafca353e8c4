// Reads a Program before it runs and refuses one that could deadlock, read memory not filled, overwrite memory still read, or leave the
// slab. It trusts only what the executor obeys: one FIFO a lane and `after`.
#pragma once
#include <span>

#include "parallel/comm/rank_mesh.h"
#include "parallel/layout/layout.h"
#include "parallel/layout/placement.h"
#include "parallel/program/program.h"

namespace spillway::parallel {

/// Throws Error(bug) "[check] instruction 17 (compute Forward block 3 …): …" at the first broken promise:
///   1. `after` names earlier instructions of the list (so no cycle, no deadlock);
///   2. two instructions whose slots overlap, one of them writing, are ordered by lanes and `after`;
///   3. what computes a block finds each of its groups' weights in their slot, fetched and not released or overwritten since;
///   4. a Backward or BackwardWeight that adds, an Accumulate, an AddTied, a Reduce and an Evict find the gradient they name in their slot;
///      micro-batches are added in ascending order;
///   5. a Fetch of a gradient comes after the Evict that wrote it;
///   6. slots lie inside their slab; a Backward or BackwardInput finds what its block kept where the Forward or a Fetch after its Evict
///      put it; before the norm every Forward has a Backward, or a BackwardInput and after it a BackwardWeight;
///   7. a head has one deferred Step of each bucket that waited for it and, under overlap backward, one speculative Step of each that is
///   not
///      deferred. A speculative one comes after the Reduce and the Evict of its group's gradient and after the Commit of the deferred ones,
///      and a head with any ends with a Land on the optimizer lane; a deferred one before the group's weights are fetched or used and
///      before its gradient is written again; weights on nvme are fetched after the Land of their Steps;
///   8. a Step finds its group's reduced gradient in the slot it names, else at rest in its tier: one of a tail as the head leaves it, a
///      deferred one as every head of this Program leaves it to the next one;
///   9. what another pipeline rank reads is in its slot when it is sent, what comes from one is there before it is read and its slot is not
///      filled again before that; uses of tied weights reach their owner, and new weights whoever shares them after their Steps;
///   10. of several data-parallel ranks: a gradient is summed over them after its last backward, or each micro-batch's after its own and
///       then added to those before; all that before it is reduced; split weights are gathered from parts that are there; what was stepped
///       in parts and rests whole is gathered before anybody sees it; their meetings have one order.
void check(const Program& program, const Layout& layout, const Placement& placement, const Scheduling& scheduling = {});

/// The Programs of all data-parallel ranks meet: their lists name the same Gathers and Exchanges in the same order. Throws Error(bug) at
/// the first that differs.
void check_meetings(std::span<const Program* const> ranks);

/// The Programs of all ranks of a mesh, by world rank, each whole by itself: run side by side, lanes and `after` as the executor obeys them
/// and every message and meeting waiting for its other side, they come to their end. Throws Error(bug) at a message whose other side is
/// another one or of other size, and where nobody can go on, with what each rank waits for.
void check_together(std::span<const Program* const> world, const Mesh& mesh);

}  // namespace spillway::parallel

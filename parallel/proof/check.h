// Verifies a Program before it runs. Refuses one that could deadlock, read memory that is not filled, overwrite memory that is still read,
// or leave its slab. It assumes only the order that the executor guarantees: one FIFO per lane, and `after`.
#pragma once
#include <span>

#include "parallel/comm/rank_mesh.h"
#include "parallel/layout/layout.h"
#include "parallel/layout/placement.h"
#include "parallel/program/program.h"

namespace spillway::parallel {

/// Throws Error(bug) "[check] instruction 17 (compute Forward block 3 …): …" at the first violation of these rules:
///   1. `after` names earlier instructions of the list (so there is no cycle and no deadlock).
///   2. Two instructions whose slots overlap, one of which writes, are ordered by lanes and `after`.
///   3. An instruction that computes a block finds each of its groups' weights in their slot, fetched and not released or overwritten.
///   4. A Backward or BackwardWeight that adds, an Accumulate, an AddTied, a Reduce and an Evict find the gradient that they name in their
///      slot. Micro-batches are added in ascending order.
///   5. A Fetch of a gradient comes after the Evict that wrote it.
///   6. Slots lie inside their slab. A Backward or BackwardInput finds what its block kept where the Forward, or a Fetch after its Evict,
///      put it. Before the norm, every Forward has a Backward, or a BackwardInput followed by a BackwardWeight.
///   7. A head has one deferred Step for each bucket that waited for it. Under overlap backward it also has one speculative Step for each
///      bucket that is not deferred. A speculative Step comes after the Reduce and the Evict of its group's gradient and after the Commit
///      of the deferred Steps, and a head with any ends with a Land on the optimizer lane. A deferred Step comes before the group's
///      weights are fetched or used and before its gradient is written again. Weights on nvme are fetched after the Land of their Steps.
///   8. A Step finds its group's reduced gradient in the slot that it names, or else stored in its tier: for a Step of a tail, as the head
///      leaves it; for a deferred Step, as every head of this Program leaves it to the next one.
///   9. Data for another pipeline rank is in its slot when it is sent. Data from one is there before it is read, and its slot is not
///      filled again before that. Gradients of tied weights reach their owner, and new weights reach all sharers after their Steps.
///   10. With several data-parallel ranks: a gradient is summed over them after its last backward, or each micro-batch's after its own and
///      then added to those before; all of this happens before it is reduced. Split weights are gathered from parts that are present.
///      Weights that are stepped in parts and stored whole are gathered before they are read. All collectives have one order.
void check(const Program& program, const Layout& layout, const Placement& placement, const Scheduling& scheduling = {});

/// Verifies that the Programs of all data-parallel ranks make the same collectives: their lists name the same Gathers and Exchanges in the
/// same order. Throws Error(bug) at the first difference.
void check_meetings(std::span<const Program* const> ranks);

/// Verifies that the Programs of all ranks of a mesh, by world rank, run to their end together. Each must have passed check(). Lanes and
/// `after` are obeyed as by the executor, and every message and collective waits for its other sides. Throws Error(bug) if the two sides of
/// a message differ in identity or size, and at a deadlock, with what each rank waits for.
void check_together(std::span<const Program* const> world, const Mesh& mesh);

}  // namespace spillway::parallel

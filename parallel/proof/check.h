// Verifies a Program (a rank's lists of instructions) before it runs. Refuses a Program that could deadlock, read memory that is not
// filled, overwrite memory that is still read, or use memory outside its slab. The check relies only on the order that the executor
// guarantees: each lane (sequence of instructions of one kind) is a FIFO, and `after` is obeyed.
#pragma once
#include <span>

#include "parallel/comm/rank_mesh.h"
#include "parallel/layout/layout.h"
#include "parallel/layout/placement.h"
#include "parallel/program/program.h"

namespace spillway::parallel {

/// Throws Error(bug) "[check] instruction 17 (compute Forward block 3 …): …" at the first violation of these rules.
///   1. `after` names only earlier instructions of the list, so there is no cycle and no deadlock.
///   2. If the slots of two instructions overlap and one of the two writes, lanes and `after` fix the order of the two.
///   3. An instruction that computes a block finds the weights of each of its groups in their slot: fetched, and neither released nor
///      overwritten since.
///   4. A Backward or BackwardWeight that adds to a gradient, an Accumulate, an AddTied, a Reduce and an Evict find the gradient that they
///      name in its slot. Micro-batches are added in ascending order.
///   5. A Fetch of a gradient comes after the Evict that wrote it.
///   6. Slots lie inside their slab. A Backward or BackwardInput finds what its block kept in the place where the Forward, or a Fetch after
///      the Evict, put it. Before AgreeNorm, every Forward has a Backward, or a BackwardInput followed by a BackwardWeight.
///   7. A head has one deferred Step for each bucket that waited for this head. Under overlap backward it also has one speculative Step for
///      each bucket that is not deferred. A speculative Step comes after the Reduce and the Evict of its group's gradient and after the
///      Commit of the deferred Steps. A head with speculative Steps ends with a Land on the optimizer lane. A deferred Step comes before
///      the group's weights are fetched or used, and before its gradient is written again. Weights on nvme are fetched after the Land of
///      their Steps.
///   8. A Step finds its group's reduced gradient in the slot that it names or, if it names none, stored in the gradient's tier. For a Step
///      of a tail, this step's head must have left it there; for a deferred Step, every head of this Program must leave it there for the
///      next one.
///   9. Data for another pipeline rank is in its slot when it is sent. Data from another pipeline rank is in its slot before it is read,
///      and the slot is not filled again before that. Gradients of tied weights reach their owner. New weights reach all ranks that share
///      them after their Steps.
///   10. With several data-parallel ranks, a gradient is summed over them after its last backward; if each micro-batch is summed, its
///      gradient is summed after its own backward and then added to the earlier ones. All of this happens before the gradient is reduced.
///      Split weights are gathered from parts that are present. Weights that are stepped in parts and stored whole are gathered before they
///      are read. All collectives have one order.
void check(const Program& program, const Layout& layout, const Placement& placement, const Scheduling& scheduling = {});

/// Verifies that the Programs of all data-parallel ranks take part in the same collectives: each list of a Program names the same Gathers
/// and Exchanges in the same order on every rank. Throws Error(bug) at the first difference.
void check_meetings(std::span<const Program* const> ranks);

/// Verifies that the Programs of all ranks of a mesh run to their end together. `world` is indexed by world rank, and
/// each Program must have passed check(). Instructions run in the order that the executor guarantees, and every message
/// and collective waits for all ranks that take part in it. Throws Error(bug) if the send and the receive of a message
/// differ in identity or size. At a deadlock, the error says what each rank waits for.
void check_together(std::span<const Program* const> world, const Mesh& mesh);

}  // namespace spillway::parallel

// A Program: everything that a rank does in a training step, as data. It is made before step 1 and then read by the checker, the executor
// and the printer. It consists of instruction lists. A step runs one of the heads, chosen by what the previous step left to do, and one of
// the tails commit and skip, chosen after AgreeNorm. Instructions are ordered by one FIFO per lane and by `after`; the executor infers
// nothing else. Every memory operand is a planned Slot. Plain values; thread-safe to read.
#pragma once
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "offload/tier.h"
#include "parallel/layout/placement.h"

namespace spillway::parallel {

enum class Op : u8 {
  Load,            // gets the step's micro-batches from the loader
  Fetch,           // copies weights or a gradient accumulator of a group, or a block's activations, from its tier into a slot
  Forward,         // runs a block forward on a micro-batch
  Backward,        // computes the gradients of a block's input and of its weights for a micro-batch
  BackwardInput,   // first part of a split backward (zero-bubble schedules): the input's gradient, for which the block before waits
  BackwardWeight,  // second part of a split backward: the weights' gradients, for which no block waits
  Gather,          // all-gathers a group's weights: stored shards into a slot, or shards just stepped into a full stored copy
  Release,         // frees the slot of a group's weights
  Exchange,        // sums an accumulator over the data-parallel ranks in rank order; with sharded gradients each rank sums its shard
  Accumulate,      // slot out += slot in: adds a micro-batch's sum over the ranks to that of the earlier micro-batches
  AddTied,         // slot out += slot in: adds up the uses of a tied weight, in block order
  Reduce,          // sums the squares of a finished gradient tile by tile, copying it to host memory on the way if it is stored there
  Evict,           // copies a gradient or activations from their slot to their tier
  AgreeNorm,
  SendActivation,  // sends a block's output from its slot to the pipeline rank of the next block
  ReceiveActivation,
  SendGradient,  // sends the gradient of a block's output to the block's pipeline rank
  ReceiveGradient,
  SendTied,  // for a tied weight, between its owner and the pipeline rank of another use: gradients to the owner, new weights from it
  ReceiveTied,
  Step,     // updates a bucket by the optimizer, streamed in tiles, from one generation into the next
  Land,     // waits until the writes of the Steps before it (of its group, if it names one) have landed
  Commit,   // waits until every write of the next generation has landed, and commits it
  Publish,  // makes readers see the next generation
};

enum class Lane : u8 { compute, load, store, optimizer, data, send, receive };
constexpr int kLanes = 7;

/// The kind of data that an instruction moves. activations: what a block keeps for its backward. output: what a block passes to the next
/// one; output_gradient: the gradient of that.
enum class What : u8 { none, weights, gradient, state, activations, output, output_gradient };

std::string_view to_string(Op op);
std::string_view to_string(Lane lane);
std::string_view to_string(What what);

/// Returns true if the op takes the gradient of a block's output and computes that of its input.
constexpr bool makes_input_gradient(Op op) { return op == Op::Backward || op == Op::BackwardInput; }
/// Returns true if the op stores or adds to the gradients of a block's weights.
constexpr bool makes_weight_gradients(Op op) { return op == Op::Backward || op == Op::BackwardWeight; }
constexpr bool computes_block(Op op) { return op == Op::Forward || makes_input_gradient(op) || makes_weight_gradients(op); }

/// Memory in which slots are planned. moving: on the device, for weights and gradients in motion. spill: in host memory, for activations
/// between forward and backward or on their way to nvme.
enum class Slab : u8 { moving, spill };
constexpr int kSlabs = 2;

/// Planned memory: the bytes [offset, offset + bytes) of a slab. bytes == 0 means no memory.
struct Slot {
  i64 offset = 0, bytes = 0;
  Slab slab = Slab::moving;
  bool overlaps(const Slot& o) const {
    return slab == o.slab && bytes > 0 && o.bytes > 0 && offset < o.offset + o.bytes && o.offset < offset + bytes;
  }
  bool operator==(const Slot&) const = default;
};

constexpr u16 kNone = 0xffff;

struct Instruction {
  Op op = Op::Load;
  Lane lane = Lane::compute;
  What what = What::none;
  u16 block = kNone, group = kNone, bucket = kNone, micro_batch = kNone;
  u8 use = 0;
  u16 peer = kNone;  // the pipeline rank that a message goes to or comes from
  TileRange tiles;   // tiles of the group that are moved, reduced or stepped
  /// For Step, Commit, and Gather, SendTied and ReceiveTied of new weights: the instruction belongs to the update that the previous step
  /// left, not to this step's own.
  bool deferred = false;
  bool first = false;        // Backward, BackwardWeight: stores the gradient instead of adding to it
  bool recompute = false;    // Forward: keeps only its input; Backward, BackwardInput: runs the forward again
  bool keep_logits = false;  // in computing of the last block: all logits are kept from forward to backward (nn::Context)
  /// Step: `in` holds the group's gradient; it is empty if the gradient is stored in its tier. Forward, Backward, BackwardInput: `in` holds
  /// the block's input or its output's gradient if that came from another rank, and `out` receives the result if that goes to another rank;
  /// empty if it stays on the rank.
  Slot in, out;
  Slot spill;                   // Forward writes what the block keeps here; Backward and BackwardInput read it
  std::vector<Slot> weights;    // in computing of a block: the slot of each of its groups, as in Layout::blocks (0 bytes: resident)
  std::vector<Slot> gradients;  // Backward, BackwardWeight: the slots of its gradients, likewise
  std::vector<u32> after;       // instructions of the same list that must be done before
  std::array<i64, offload::kTiers> read_bytes{}, written_bytes{};  // bytes that the instruction moves, by tier
  i64 exchanged_bytes = 0;                                         // Gather, Exchange: bytes of the whole that crosses the ranks
  i64 sent_bytes = 0;                                              // bytes sent to another pipeline rank
};

using List = std::vector<Instruction>;

/// States which Steps of a step's update wait for the next head: none; those of the deferred groups (GroupResidency::deferred); or all, if
/// the update was clipped, so that what was stepped inside the backward is discarded.
enum class Waiting : u8 { nothing, deferred, all };

struct Program {
  OptimizerOverlap overlap = OptimizerOverlap::none;
  List head;                    // follows a step whose norm was not clipped
  List first_head;              // if Steps are deferred: replaces the head when no Steps wait, as in the first step
  List clipped_head;            // overlap backward: replaces the head when all Steps wait
  List commit, skip;            // tails of the step; skip: the norm is not finite
  List settle, clipped_settle;  // run the Steps that wait for `head` or for `clipped_head`, if something else than a step comes next
  std::array<i64, kSlabs> slab_bytes{};  // size of the memory in which the slots lie

  /// Returns which Steps wait for the next head after a step that was not skipped.
  Waiting leaves(bool clipped) const {
    if (overlap == OptimizerOverlap::forward || (overlap == OptimizerOverlap::backward && clipped)) return Waiting::all;
    return first_head.empty() ? Waiting::nothing : Waiting::deferred;
  }
  const List& head_for(Waiting waiting) const {
    if (waiting == Waiting::nothing) return first_head.empty() ? head : first_head;
    return waiting == Waiting::all && overlap == OptimizerOverlap::backward ? clipped_head : head;
  }
  const List& settle_for(Waiting waiting) const {
    return waiting == Waiting::all && overlap == OptimizerOverlap::backward ? clipped_settle : settle;
  }

  i64 moving_slab_bytes() const { return slab_bytes[static_cast<size_t>(Slab::moving)]; }
  i64 spill_slab_bytes() const { return slab_bytes[static_cast<size_t>(Slab::spill)]; }
};

/// The lists of a training Program and their names.
constexpr std::pair<const char*, List Program::*> kLists[] = {{"head", &Program::head},
                                                              {"first head", &Program::first_head},
                                                              {"clipped head", &Program::clipped_head},
                                                              {"commit", &Program::commit},
                                                              {"skip", &Program::skip},
                                                              {"settle", &Program::settle},
                                                              {"clipped settle", &Program::clipped_settle}};

/// Returns one line per instruction: number, lane, operation, operands, slot, bytes, after.
std::string to_text(const List& list);
/// Bytes a list reads from and writes to each tier.
struct TierBytes {
  std::array<i64, offload::kTiers> read{}, written{};
  i64 exchanged = 0;  // bytes that cross data-parallel ranks
  i64 sent = 0;       // bytes sent to other pipeline ranks

  TierBytes& operator+=(const TierBytes& more);
  TierBytes& operator-=(const TierBytes& less);
};
TierBytes moved_bytes(const List& list);

}  // namespace spillway::parallel

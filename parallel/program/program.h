// What a rank does in a training step, as data: made before step 1, then read by the checker, the executor and the printer. A step is one
// of the heads, chosen by what the step before left to do, and one of the tails commit and skip, chosen by AgreeNorm. Ordering is one FIFO
// a lane plus `after`; the executor infers nothing. Every memory operand is a planned Slot. Values; thread-safe to read.
#pragma once
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "offload/tier.h"
#include "parallel/layout/placement.h"

namespace spillway::parallel {

enum class Op : u8 {
  Load,            // the step's micro-batches from the loader
  Fetch,           // weights or a gradient accumulator of a group, or a block's activations, from its tier into a slot
  Forward,         // block, micro-batch
  Backward,        // block, micro-batch: the gradients of its input and of its weights
  BackwardInput,   // the same in two parts (zero-bubble schedules): the first, which the block before waits for,
  BackwardWeight,  // and the second, which nobody does
  Gather,    // weights of a group from all data-parallel ranks: the parts at rest into a slot, or those just stepped into what rests whole
  Release,   // the weights' slot is free
  Exchange,  // an accumulator summed over the data-parallel ranks in their order; where gradients are split, each its own part
  Accumulate,  // slot out += slot in: a micro-batch's sum over the ranks joins those of the micro-batches before
  AddTied,     // slot out += slot in: the uses of a tied weight, in block order
  Reduce,      // sums of squares of a finished gradient, tile by tile, which goes to host memory on the way if it rests there
  Evict,       // a gradient or activations from their slot to their tier
  AgreeNorm,
  SendActivation,  // a block's output from its slot to the pipeline rank of the next block
  ReceiveActivation,
  SendGradient,  // of a block's output, to the block's pipeline rank
  ReceiveGradient,
  SendTied,  // of a tied weight, between its owner and the pipeline rank of another use: the gradient to the owner, new weights from it
  ReceiveTied,
  Step,     // optimizer update of a bucket, streamed in tiles, from one generation into the next
  Land,     // the writes of the Steps before it (of its group, if it names one) have landed
  Commit,   // every write of the next generation has landed
  Publish,  // readers see the next generation
};

enum class Lane : u8 { compute, load, store, optimizer, data, send, receive };
constexpr int kLanes = 7;

/// activations: what a block keeps for its backward. output: what it hands on; output_gradient: what comes back for it.
enum class What : u8 { none, weights, gradient, state, activations, output, output_gradient };

std::string_view to_string(Op op);
std::string_view to_string(Lane lane);
std::string_view to_string(What what);

/// Takes the gradient of a block's output and makes that of its input.
constexpr bool makes_input_gradient(Op op) { return op == Op::Backward || op == Op::BackwardInput; }
/// Stores or adds to the gradients of a block's weights.
constexpr bool makes_weight_gradients(Op op) { return op == Op::Backward || op == Op::BackwardWeight; }
constexpr bool computes_block(Op op) { return op == Op::Forward || makes_input_gradient(op) || makes_weight_gradients(op); }

/// moving: on the device, for weights and gradients on their way. spill: in host memory, for activations between forward and backward or on
/// their way to nvme.
enum class Slab : u8 { moving, spill };
constexpr int kSlabs = 2;

/// Planned memory: [offset, offset + bytes) of a slab. bytes == 0: none.
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
  u16 peer = kNone;  // pipeline rank a message goes to or comes from
  TileRange tiles;   // of the group: what is moved, reduced or stepped
  /// Step, Commit, Gather, SendTied and ReceiveTied of new weights: of the update that the step before left, not of this step's own.
  bool deferred = false;
  bool first = false;        // Backward, BackwardWeight: stores the gradient instead of adding to it
  bool recompute = false;    // Forward keeps only its input; Backward or BackwardInput runs it again
  bool keep_logits = false;  // of what computes the last block: all of them are there from forward to backward (nn::Context)
  /// Step: `in` is where the group's gradient lies, none when it rests in its tier. Forward, Backward, BackwardInput: `in` is where the
  /// block's input or its output's gradient has come to from another rank, `out` where what goes to another one is put; none where it stays
  /// on the rank.
  Slot in, out;
  Slot spill;                   // Forward: what the block keeps goes there; Backward, BackwardInput: it lies there
  std::vector<Slot> weights;    // of what computes a block: the slot of each of its groups, as in Layout::blocks (bytes 0: resident)
  std::vector<Slot> gradients;  // Backward, BackwardWeight: likewise
  std::vector<u32> after;       // instructions of the same list
  std::array<i64, offload::kTiers> read_bytes{}, written_bytes{};  // what it moves, by tier
  i64 exchanged_bytes = 0;                                         // Gather, Exchange: of the whole that crosses the ranks
  i64 sent_bytes = 0;                                              // to another pipeline rank
};

using List = std::vector<Instruction>;

/// Which Steps of a step's update wait for the next head: none; those of the deferred groups (GroupResidency::deferred); or all, where the
/// update was clipped and what was stepped inside the backward was in vain.
enum class Waiting : u8 { nothing, deferred, all };

struct Program {
  OptimizerOverlap overlap = OptimizerOverlap::none;
  List head;                             // after a step whose norm was not clipped
  List first_head;                       // where Steps are deferred: instead of the head when none waits, as in the first step
  List clipped_head;                     // overlap backward: instead of the head when all Steps wait
  List commit, skip;                     // skip: the norm is not finite
  List settle, clipped_settle;           // the Steps that wait for `head` and for `clipped_head`, when something else comes first
  std::array<i64, kSlabs> slab_bytes{};  // memory the slots lie in

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

/// The lists of a training Program, and what they are called.
constexpr std::pair<const char*, List Program::*> kLists[] = {{"head", &Program::head},
                                                              {"first head", &Program::first_head},
                                                              {"clipped head", &Program::clipped_head},
                                                              {"commit", &Program::commit},
                                                              {"skip", &Program::skip},
                                                              {"settle", &Program::settle},
                                                              {"clipped settle", &Program::clipped_settle}};

/// One line an instruction: number, lane, operation, operands, slot, bytes, after.
std::string to_text(const List& list);
/// Bytes a list reads from and writes to each tier.
struct TierBytes {
  std::array<i64, offload::kTiers> read{}, written{};
  i64 exchanged = 0;  // between data-parallel ranks
  i64 sent = 0;       // to other pipeline ranks

  TierBytes& operator+=(const TierBytes& more);
  TierBytes& operator-=(const TierBytes& less);
};
TierBytes moved_bytes(const List& list);

}  // namespace spillway::parallel

// A Program is everything that a rank does in a training step, as data. It is made before step 1 and then read by the checker, the executor
// and the printer. It consists of lists of instructions. A step first runs one of the heads, which depends on what the previous step left
// to do. After AgreeNorm the step runs one of two tails, commit or skip. Two things order the instructions: each lane (a sequence of
// instructions of one kind) is a FIFO, and `after` names instructions to wait for. The executor infers no other order. Every memory operand
// is a planned Slot. A generation is one complete copy of the weights and the optimizer state; an update reads one generation and writes
// the next. Plain values; thread-safe to read.
#pragma once
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "offload/tier.h"
#include "parallel/layout/placement.h"

namespace spillway::parallel {

enum class Op : u8 {
  Load,  // gets the step's micro-batches from the loader
  // copies weights or a gradient accumulator of a group, or a block's activations, from the tier where it is stored into planned memory
  // (a slot)
  Fetch,
  Forward,         // runs a block forward on a micro-batch
  Backward,        // computes the gradients of a block's input and of its weights for a micro-batch
  BackwardInput,   // first part of a split backward (zero-bubble): the gradient of the input, for which the block before waits
  BackwardWeight,  // second part of a split backward: the gradients of the block's weights, for which no block waits
  // all-gathers a group's weights: either stored shards into planned memory, or newly updated shards into a copy that is stored whole
  Gather,
  Release,         // frees the planned memory (slot) of a group's weights
  Exchange,        // sums an accumulator over the data-parallel ranks in rank order; sharded gradients: each rank gets its shard of the sum
  Accumulate,      // out += in: adds the sum over the ranks of one micro-batch's gradient to the sum of the earlier micro-batches
  AddTied,         // out += in: adds up the gradients that several blocks have for a tied weight, in block order
  Reduce,          // sums the squares of a finished gradient tile by tile; also copies the gradient to host memory if it is stored there
  Evict,           // copies a gradient or activations from planned memory to the tier where they are stored
  AgreeNorm,       // exchanges the sums of squares and the loss, so that all ranks compute the same gradient norm and loss
  SendActivation,  // sends a block's output from planned memory to the pipeline rank of the next block
  ReceiveActivation,
  SendGradient,  // sends the gradient of a block's output to the block's pipeline rank
  ReceiveGradient,
  SendTied,  // for a tied weight, between its owner and the pipeline rank of another use: gradients to the owner, new weights from it
  ReceiveTied,
  Step,     // the optimizer's update of a bucket, streamed in tiles: reads the current generation, writes the next
  Land,     // waits until the writes of earlier optimizer updates are complete: those of its group, or all if it names no group
  Commit,   // waits until every write of the state's next generation is complete, and commits it
  Publish,  // makes the next generation the one that readers of weights and state see
};

enum class Lane : u8 { compute, load, store, optimizer, data, send, receive };
constexpr int kLanes = 7;

/// Names the kind of data that an instruction moves. activations: what a block keeps for its backward. output:
/// what a block passes to the next block. output_gradient: the gradient of that output.
enum class What : u8 { none, weights, gradient, state, activations, output, output_gradient };

std::string_view to_string(Op op);
std::string_view to_string(Lane lane);
std::string_view to_string(What what);

/// Returns true if the op takes the gradient of a block's output and computes the gradient of the block's input.
constexpr bool makes_input_gradient(Op op) { return op == Op::Backward || op == Op::BackwardInput; }
/// Returns true if the op computes the gradients of a block's weights and stores them or adds them to earlier ones.
constexpr bool makes_weight_gradients(Op op) { return op == Op::Backward || op == Op::BackwardWeight; }
constexpr bool computes_block(Op op) { return op == Op::Forward || makes_input_gradient(op) || makes_weight_gradients(op); }

/// The slabs: large pieces of memory in which the slots (planned memory of instructions) lie. moving: on the device, for weights and
/// gradients in motion, and with a GPU for activations in motion. spill: without a GPU, in host memory, for activations that are kept there
/// between forward and backward or are on their way to or from nvme.
enum class Slab : u8 { moving, spill };
constexpr int kSlabs = 2;

/// A Slot is planned memory: the bytes [offset, offset + bytes) of a slab. bytes == 0 means no memory.
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
  u16 peer = kNone;  // the pipeline rank to which a message goes or from which it comes
  TileRange tiles;   // tiles of the group that are moved, reduced or updated; or tiles of the block's activations
  /// True if a Step or Commit, or a Gather, SendTied or ReceiveTied of new weights, belongs to the update that the previous step
  /// deferred. False if the instruction belongs to this step's own update.
  bool deferred = false;
  bool first = false;        // Backward, BackwardWeight: stores the gradient; if false, adds it to the earlier ones
  bool recompute = false;    // Forward: keeps only the block's input; Backward and BackwardInput: run the forward again
  bool keep_logits = false;  // for instructions that compute the last block: all logits are kept from forward to backward (nn::Context)
  /// For an optimizer update (Step), `in` holds the group's gradient; `in` is empty if the gradient is stored in its tier. For Forward,
  /// Backward and BackwardInput, `in` holds what they read (the block's input, or the gradient of its output) if that came from another
  /// rank, and `out` receives the result if the result goes to another rank. `in` and `out` are empty if the data stays on this rank.
  Slot in, out;
  Slot spill;  // memory for activations that are kept outside the device: Forward writes it, Backward and BackwardInput read it
  // The slots with the weights of the block that is computed, one for each of its groups in the order of Layout::blocks. 0 bytes: the
  // group is always on the device.
  std::vector<Slot> weights;
  // Backward, BackwardWeight: the planned memory (slots) of the gradients of the block's groups, in the order of `weights`
  std::vector<Slot> gradients;
  std::vector<u32> after;  // instructions of the same list that must be done before this instruction starts
  std::array<i64, offload::kTiers> read_bytes{}, written_bytes{};  // for each tier: bytes that the instruction reads and writes
  i64 exchanged_bytes = 0;  // Gather, Exchange: size of the whole weights or gradients that the ranks exchange
  i64 sent_bytes = 0;       // bytes sent to another pipeline rank
};

using List = std::vector<Instruction>;

/// Which optimizer updates (Steps) wait for the next step. nothing: none. deferred: those of the deferred groups
/// (GroupResidency::deferred). all: every one, because the gradients were clipped and the updates made inside the backward are discarded.
enum class Waiting : u8 { nothing, deferred, all };

struct Program {
  OptimizerOverlap overlap = OptimizerOverlap::none;
  List head;          // the instructions with which a step begins, if the gradients of the previous step were not clipped
  List first_head;    // if some updates are deferred: replaces the head when none waits, as in the first step
  List clipped_head;  // with overlap backward: replaces the head when all optimizer updates wait
  List commit, skip;  // the tails of a step; skip is run if the norm is not finite or if all optimizer updates wait
  // `settle` and `clipped_settle` make the optimizer updates that wait for `head` or
  // `clipped_head`, if a save or a validation comes before the next step.
  List settle, clipped_settle;
  std::array<i64, kSlabs> slab_bytes{};  // for each slab: bytes of the memory in which its slots lie

  /// Returns which optimizer updates wait for the next step after a step whose norm was finite.
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

/// Pairs each list of a training Program with its name.
constexpr std::pair<const char*, List Program::*> kLists[] = {{"head", &Program::head},
                                                              {"first head", &Program::first_head},
                                                              {"clipped head", &Program::clipped_head},
                                                              {"commit", &Program::commit},
                                                              {"skip", &Program::skip},
                                                              {"settle", &Program::settle},
                                                              {"clipped settle", &Program::clipped_settle}};

/// Returns one line per instruction: number, lane, operation, operands, slots, bytes, and the instructions to wait for.
std::string to_text(const List& list);
/// Counts the bytes that a list reads from and writes to each tier, and those that it exchanges with other ranks.
struct TierBytes {
  std::array<i64, offload::kTiers> read{}, written{};
  i64 exchanged = 0;  // bytes exchanged among data-parallel ranks
  i64 sent = 0;       // bytes sent to other pipeline ranks

  TierBytes& operator+=(const TierBytes& more);
  TierBytes& operator-=(const TierBytes& less);
};
TierBytes moved_bytes(const List& list);

}  // namespace spillway::parallel

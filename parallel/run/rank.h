// One rank at work: executes a plan's Programs over a model, its state at rest and its resources. Owned and driven by one thread; its lanes
// are its own. Whatever the placement, the numbers are the same bits.
#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <optional>

#include "optim/tile_values.h"
#include "parallel/blocks/accumulator.h"
#include "parallel/blocks/block_runner.h"
#include "parallel/comm/shared_end.h"
#include "parallel/gpu/rank_exchange.h"
#include "parallel/run/clip_record.h"
#include "parallel/run/executor.h"
#include "parallel/run/rank_device.h"

namespace spillway::parallel {

/// Numbers of one optimizer step.
struct StepResult {
  double loss = 0;       // mean over all counted targets, before the update
  double grad_norm = 0;  // before clipping, of the unscaled gradients
  double loss_scale = 1;
  bool skipped = false;  // the norm was not finite: no update
  bool clipped = false;
  bool redo = false;  // the speculation was in vain
};

struct StepSettings {
  Update update;  // gradient_scale is filled in
  double gradient_clipping = 1;
  double loss_scale = 1;  // a power of two, on all ranks: gradients hold so many times what they are
  RandomKey random;
  /// What a restart shall know of this step beside the state itself; asked for once the step's numbers are known.
  std::function<std::string(const StepResult&)> record;
};

class Rank {
 public:
  /// Allocates all planned memory; weights are zero until load(). The plan and the model must outlive the rank.
  Rank(const nn::Sequential& model, const Plan& plan, const Resources& resources);
  ~Rank();

  /// Fills every parameter: `source` writes elements [begin, begin + out.size()) of one; `moments`, if given, those of m and v, else they
  /// are zero. Called from several threads at once.
  using Source = std::function<void(const nn::Parameter&, i64 begin, std::span<double> out)>;
  using MomentSource = std::function<void(const nn::Parameter&, optim::StatePart, i64 begin, std::span<double> out)>;
  void load(const Source& source, const MomentSource& moments = {});

  /// One optimizer step. `load_batch` is called once, on the data lane, with this rank's device memory in force. Under overlap forward the
  /// update itself waits for the next train_step or settle().
  StepResult train_step(const std::function<StepBatch()>& load_batch, const StepSettings& settings);
  /// Executes a deferred update: to be called before anything but the next train_step looks at state(). evaluate() and logits() do it.
  void settle();
  /// Hands out the state as it is now, settled, to `save` while training goes on; the snapshot before has ended.
  Snapshot& begin_snapshot(Snapshot::Save save, double patience_s = Snapshot::kPatient);
  /// Null: none begun since the last end_snapshot().
  Snapshot* snapshot() { return snapshot_ ? &*snapshot_ : nullptr; }
  /// What has not ended is given up.
  void end_snapshot();
  /// Sum of token losses of one micro-batch of this data-parallel rank (Mode::evaluate). All ranks call it together.
  double evaluate(const MicroBatch& batch);
  /// Logits of one position, row by row [B, V], widened to fp64. Likewise.
  std::vector<double> logits(const MicroBatch& batch, i64 position);

  /// Memory in force that the CPU writes, for making micro-batches outside train_step: the device's, or beside a GPU the host's.
  const Stream& input_stream() const { return device_.streams.made; }
  ModelState& state() { return state_; }
  /// To other pipeline ranks so far.
  i64 sent_bytes() const { return sent_bytes_; }
  /// Of all that crossed the data-parallel ranks so far.
  i64 exchanged_bytes() const { return exchanged_bytes_; }
  const Plan& plan() const { return plan_; }
  /// Of the last step: its Program, the tail that was run (null: none), and one Timing an instruction.
  const Program& last_program() const { return *program_; }
  const List* last_tail() const { return tail_; }
  const std::vector<Timing>& head_timings() const { return head_timings_; }
  const std::vector<Timing>& tail_timings() const { return tail_timings_; }
  std::chrono::steady_clock::time_point head_begin() const { return head_begin_; }
  std::chrono::steady_clock::time_point tail_begin() const { return tail_begin_; }

 private:
  /// Returns the microseconds it waited for transfers.
  double perform(const Instruction& i);
  double carry_out(const Instruction& i);
  void compute(const Instruction& i);
  void load_batches();
  double fetch(const Instruction& i);
  double evict(const Instruction& i);
  void backward(const Instruction& i);
  void gather(const Instruction& i);
  void exchange(const Instruction& i);
  double send(const Instruction& i);
  double receive(const Instruction& i);
  std::span<std::byte> message_bytes(const Instruction& i, const Slot& slot);
  std::unique_ptr<RankExchange> make_exchange(MemoryPool& host);
  Dealt dealt(const Group& group, i64 tile_bytes) const;
  void send_weights(const Instruction& i);
  void receive_weights(const Instruction& i);
  void agree();
  void agree_with_data_ranks();
  void agree_with_pipeline_ranks();
  /// From the last block's rank to the others.
  void tell_pipeline_ranks(std::span<std::byte> bytes);
  void add_gradients(const Instruction& i);
  void reduce(const Instruction& i);
  /// Of this rank's micro-batches, in their order.
  double sum_losses() const;
  void count_host(const Instruction& i);
  void fill_group(u16 group, std::byte* base);
  void drop_group(u16 group);
  void show_resident_weights();
  double step(const Instruction& i);
  void commit();
  void publish();
  void begin_deferred();
  void fill_tile(const Group& group, i64 tile, const Source& source, const MomentSource& moments, std::byte* weight, std::byte* state);
  enum class Steps { alone, beside_compute, idle };  // idle: the deferred Steps of a head have nothing to do
  std::vector<Timing> run_list(const List& list, Steps steps = Steps::alone);
  void tell_peers(const std::exception_ptr& error) const;
  void begin_step(const StepSettings& settings);
  /// `factor`: the clip factor.
  StepResult judge(const StepSettings& settings, double& factor) const;
  void run_forward(const MicroBatch& batch, nn::Mode mode, i64 position);
  BlockMemory memory(const Instruction& i) { return {at(i.spill), at(i.in), at(i.out), device_.sums->loss(i.micro_batch)}; }
  std::byte* at(const Slot& slot) { return (slot.slab == Slab::spill ? spill_ : moving_).data() + slot.offset; }
  std::span<std::byte> bytes(const Slot& slot) { return {at(slot), static_cast<size_t>(slot.bytes)}; }
  TileRange activation_tile(const Instruction& i) const;
  /// The accumulator of (group, use): in its slot, or resident.
  std::byte* gradient(const Slot& slot, GroupUse use);
  std::byte* gradient_tiles(const Slot& slot, GroupUse use, TileRange tiles);
  const optim::StateFormat& format() const { return plan_.scheduling.format; }
  const Sharding& sharding() const { return plan_.scheduling.sharding; }
  bool alone() const { return sharding().ranks == 1; }

  const nn::Sequential& model_;
  const Plan& plan_;
  ModelState state_;
  Allocation moving_, spill_, activation_slab_;
  Arena activations_;
  Stepper stepper_;
  RankDevice device_;
  BlockRunner runner_;
  Accumulator accumulator_;
  std::vector<std::vector<double>> square_sums_;  // by group, tile; of all ranks once they have agreed
  double loss_sum_ = 0;                           // likewise
  Communicator* const data_ranks_;
  const std::array<Communicator*, 2> peers_;  // null where there are none
  SharedEnd pipeline_ranks_;
  std::unique_ptr<RankExchange> own_exchange_;  // unless GPUs talk to each other
  RankExchange* exchange_ = nullptr;
  std::atomic<i64> exchanged_bytes_{0}, sent_bytes_{0};

  // Of the step under way.
  const std::function<StepBatch()>* load_batch_ = nullptr;
  StepBatch batch_;
  StepSettings settings_;
  const Program* program_ = nullptr;
  const List* tail_ = nullptr;
  Update update_;                   // what the Steps under way apply
  u64 step_from_ = 0;               // and the generation they read
  std::string record_;              // and the record they are committed with
  std::optional<Update> deferred_;  // overlap forward: an update whose gradients wait
  Steps steps_ = Steps::alone;
  ClipRecord clip_record_;
  std::vector<MicroBatch> forward_batch_;
  std::vector<Timing> head_timings_, tail_timings_;
  std::chrono::steady_clock::time_point head_begin_, tail_begin_;
  std::optional<offload::StagingRing> snapshot_queue_;
  std::optional<Snapshot> snapshot_;  // last: it reads the state
};

}  // namespace spillway::parallel

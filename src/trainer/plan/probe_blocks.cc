#include <unistd.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <typeinfo>

#include "base/error.h"
#include "device/arena.h"
#include "device/gpu_queue.h"
#include "device/memory_pool.h"
#include "device/transfer.h"
#include "parallel/blocks/accumulator.h"
#include "parallel/blocks/block_runner.h"
#include "parallel/state/stopwatch.h"
#include "trainer/node/forget.h"
#include "trainer/plan/cost_model.h"
#include "trainer/plan/probe.h"

namespace spillway::trainer {
namespace {

using parallel::Instruction;
using parallel::Op;
using parallel::PlanRequest;

constexpr double kMostPassSeconds = 2;  // a longer pass, as extrapolated from one row, is timed with fewer rows
constexpr double kMostRowSeconds = 8;   // if one row is expected to take longer, nothing is timed
constexpr int kLeastPasses = 3;
constexpr double kTimedSeconds = 0.05;  // passes are repeated for at least this many seconds
constexpr double kExpectedShare = 0.5;  // the share of the machine's FLOP/s that one row is expected to reach

// Kinds groups the blocks of a model by kind: it holds the first block of each kind, ascending, and the kind of each
// block. Blocks of one kind have the same class and the same shapes of parameters, input and output. They train the
// same parameters, and all or none of them pass a gradient on to the block before. Only blocks whose output has the
// shape of their input share a kind, so that the first blocks of all kinds can run one after the other.
struct Kinds {
  std::vector<u16> first;
  std::vector<size_t> of_block;
};

Kinds kinds_of(const PlanRequest& r) {
  Kinds kinds;
  std::map<std::string, size_t> known;
  const std::vector<parallel::BlockOutput> outputs = block_outputs(r);
  for (u16 b = 0; b < r.layout.blocks.size(); ++b) {
    std::string kind = b < r.layout.first_trained_block ? "forward" : b == r.layout.first_trained_block ? "first" : "";
    for (const parallel::GroupUse& use : r.layout.blocks[b]) {
      const parallel::Group& g = r.layout.groups[use.group];
      for (const parallel::Segment& s : g.segments)
        kind += to_string(r.model->parameters[s.parameter]->value().shape()) + (g.frozen ? "frozen" : "");
    }
    const nn::Module& block = *r.model->blocks[b];
    kind += typeid(block).name() + to_string(outputs[b].shape);
    if (b == 0 || !(outputs[b - 1u].shape == outputs[b].shape)) kind += " alone " + std::to_string(b);
    const auto [at, isnew] = known.try_emplace(std::move(kind), kinds.first.size());
    if (isnew) kinds.first.push_back(b);
    kinds.of_block.push_back(at->second);
  }
  return kinds;
}

// Returns bytes that give small numbers of both signs, whether they are read as f32 or as bf16.
std::vector<std::byte> numbers(i64 bytes) {
  std::vector<std::byte> all(static_cast<size_t>(bytes));
  auto* words = reinterpret_cast<u32*>(all.data());
  for (i64 i = 0; i < bytes / 4; ++i) words[i] = 0x3c003c00u | ((static_cast<u32>(i) * 2654435761u) & 0x807f807fu);
  return all;
}

i64 cache_bytes() { return std::max<i64>(::sysconf(_SC_LEVEL3_CACHE_SIZE), ::sysconf(_SC_LEVEL2_CACHE_SIZE)); }

// Chain runs the first block of each kind one after the other, as if they were the model.
class Chain {
 public:
  /// `queue` is the command queue of the GPU; null if the CPU computes.
  Chain(const PlanRequest& r, const Kinds& kinds, i64 rows, const GpuQueue* queue = nullptr)
      : r_(r),
        kinds_(kinds),
        rows_(rows),
        queue_(queue),
        in_parts_(make_stages(r.layout, r.scheduling).schedule.splits_backward()),
        runner_(*r.model),
        accumulator_(r.layout, r.scheduling.format.gradient) {}
  ~Chain() {
    for (const parallel::Segment* s : segments()) {
      if (storage(*s).resident()) storage(*s).drop();
    }
  }
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;

  /// Allocates weights and gradients of all blocks of the chain. `slab` is the memory in which the current stream computes.
  void take(Allocator& memory, std::span<const std::byte> slab) {
    const i64 model_bytes = r_.layout.elems() * (size_of(r_.scheduling.format.weight) + size_of(r_.scheduling.format.gradient));
    if (model_bytes > cache_bytes() && !queue_) slab_ = slab;
    for (u16 group : groups()) {
      const parallel::Group& g = r_.layout.groups[group];
      Allocation weights = memory.allocate(g.elems * size_of(r_.scheduling.format.weight), "probe: weights");
      const std::vector<std::byte> values = numbers(weights.bytes());
      transfer(weights.data(), values.data(), weights.bytes());
      for (const parallel::Segment& s : g.segments) storage(s).fill(weights.data() + s.begin * size_of(r_.scheduling.format.weight));
      weights_[group] = std::move(weights);
      if (!g.frozen) gradients_[group] = memory.allocate(g.elems * size_of(r_.scheduling.format.gradient), "probe: gradients");
    }
  }

  /// Runs forward and backward of all blocks once, on the current stream. Returns the seconds by kind of block.
  std::vector<BlockSeconds> pass(bool first) {
    batches_ = {batch()};
    runner_.begin(batches_, nn::Mode::train, {}, 1.0 / static_cast<double>(rows_ * r_.sequence_length));
    std::vector<BlockSeconds> seconds(kinds_.first.size());
    for (size_t k = 0; k < seconds.size(); ++k) {
      const Instruction i{.op = Op::Forward, .block = kinds_.first[k], .micro_batch = 0};
      forget(i.block);
      seconds[k].forward = seconds_of([&] { runner_.forward(i); });
    }
    for (size_t k = seconds.size(); k-- > 0 && kinds_.first[k] >= r_.layout.first_trained_block;) {
      // the last block's backward follows its forward directly, so its data is still in the caches, as in a run
      if (k + 1 < seconds.size()) forget(kinds_.first[k]);
      backward(kinds_.first[k], first, seconds[k]);
    }
    batches_.clear();
    return seconds;
  }

 private:
  void backward(u16 block, bool first, BlockSeconds& seconds) {
    double& whole = first ? seconds.backward : seconds.backward_more;
    if (in_parts_) whole = seconds.backward_input = time_backward({.op = Op::BackwardInput, .block = block, .micro_batch = 0});
    if (in_parts_ && !r_.layout.trains(block)) return;
    whole += time_backward({.op = in_parts_ ? Op::BackwardWeight : Op::Backward, .block = block, .micro_batch = 0, .first = first});
  }
  double time_backward(const Instruction& i) {
    for (const parallel::GroupUse& use : r_.layout.blocks[i.block]) {
      if (r_.layout.groups[use.group].frozen || !makes_weight_gradients(i.op)) continue;
      const auto memory = gradients_.find(use.group);
      accumulator_.place(use, memory == gradients_.end() ? nullptr : memory->second.data(), i.first);
    }
    return seconds_of([&] {
      runner_.backward(i, accumulator_);
      accumulator_.finish();
    });
  }
  // Returns the seconds until `work` is done, including the part of it that runs on the GPU.
  double seconds_of(const std::function<void()>& work) const {
    return parallel::microseconds_of([&] {
             work();
             if (queue_) queue_->wait();
           }) /
           1e6;
  }
  // Evicts from the CPU's caches the memory that the block will touch, if the model is larger than the caches.
  void forget(u16 block) const {
    trainer::forget(slab_);
    if (slab_.empty()) return;
    const auto all_of = [](const Allocation& a) { return std::span<const std::byte>(a.data(), static_cast<size_t>(a.bytes())); };
    for (const parallel::GroupUse& use : r_.layout.blocks[block]) {
      trainer::forget(all_of(weights_.at(use.group)));
      if (const auto gradients = gradients_.find(use.group); gradients != gradients_.end()) trainer::forget(all_of(gradients->second));
    }
  }
  std::vector<u16> groups() const {
    std::vector<u16> all;
    for (u16 block : kinds_.first) {
      for (const parallel::GroupUse& use : r_.layout.blocks[block]) all.push_back(use.group);
    }
    std::ranges::sort(all);
    all.erase(std::ranges::unique(all).begin(), all.end());
    return all;
  }
  std::vector<const parallel::Segment*> segments() const {
    std::vector<const parallel::Segment*> all;
    for (u16 group : groups()) {
      for (const parallel::Segment& s : r_.layout.groups[group].segments) all.push_back(&s);
    }
    return all;
  }
  Storage& storage(const parallel::Segment& s) const { return *r_.model->parameters[s.parameter]->storage; }

  // Returns the number of rows of the smallest table of tokens, positions or classes. Ids below this number are valid in every such table.
  i64 fewest_ids() const {
    std::optional<i64> fewest;
    for (const auto& p : r_.model->parameters) {
      if (p->of_ids && p->shape.rank() > 0) fewest = std::min(fewest.value_or(p->shape[0]), p->shape[0]);
    }
    return fewest.value_or(1);
  }

  // Fills floating-point inputs with numbers. Integer inputs get zeros, which are valid indices into any table. The row mask gets ones.
  static void fill_inputs(MicroBatch& b) {
    for (Tensor* t : b.tensors()) {
      if (!t->defined() || !t->raw()) continue;
      const bool is_mask = t == &b.row_mask_B;
      const std::vector<std::byte> values =
          is_floating(t->dtype()) ? numbers(t->bytes()) : std::vector<std::byte>(static_cast<size_t>(t->bytes()), std::byte{is_mask});
      transfer(t->raw(), values.data(), t->bytes());
    }
  }

  MicroBatch batch() const {
    MicroBatch b = nn::empty_batch(*r_.model, rows_, r_.sequence_length);
    const auto fill = [](const Tensor& t, i64 times, i64 below) {
      std::vector<i32> values(static_cast<size_t>(t.elems()));
      for (i64 i = 0; i < t.elems(); ++i) values[static_cast<size_t>(i)] = static_cast<i32>(i * times % below);
      if (t.raw()) transfer(t.raw(), reinterpret_cast<const std::byte*>(values.data()), t.bytes());
    };
    const bool images = r_.model->reads_images();
    b.counted_targets = b.targets_BT.elems();
    if (!r_.model->inputs.empty()) {
      fill_inputs(b);
      b.samples = rows_;
      return b;
    }
    fill(b.targets_BT, 104729, fewest_ids());
    if (images) {
      const std::vector<std::byte> pixels = numbers(b.images_NCHW.bytes());
      if (b.images_NCHW.raw()) transfer(b.images_NCHW.raw(), pixels.data(), b.images_NCHW.bytes());
    } else {
      fill(b.tokens_BT, 7919, fewest_ids());
      fill(b.positions_BT, 1, r_.sequence_length);
    }
    return b;
  }

  const PlanRequest& r_;
  const Kinds& kinds_;
  const i64 rows_;
  const GpuQueue* const queue_;
  const bool in_parts_;  // true if the schedule splits the backward into two parts
  // memory of activations and gradients, which forget() evicts from the caches; empty if the whole model fits into the caches
  std::span<const std::byte> slab_;
  std::map<u16, Allocation> weights_, gradients_;
  std::vector<MicroBatch> batches_;
  parallel::BlockRunner runner_;
  parallel::Accumulator accumulator_;
};

i64 slab_bytes(const PlanRequest& r, const Kinds& kinds, i64 rows) {
  Arena memory;
  const Stream stream{r.meta(), nullptr, &memory};
  const StreamScope scope(stream);
  Chain chain(r, kinds, rows);
  chain.pass(true);
  if (r.scheduling.micro_batches > 1) chain.pass(false);
  return memory.peak_bytes();
}

double pass_flops(const PlanRequest& r, const Kinds& kinds, i64 rows) {
  double flops = 0;
  for (u16 block : kinds.first) {
    const BlockFlops work = block_flops(r.layout, *r.model, block, static_cast<double>(rows * r.sequence_length));
    flops += 2 * work.forward + work.weight_gradients;
  }
  return flops;
}

double total(const std::vector<BlockSeconds>& pass) {
  double sum = 0;
  for (const BlockSeconds& s : pass) sum += s.forward + std::max(s.backward, s.backward_more);
  return sum;
}

double median(std::vector<double> all) {
  if (all.empty()) return 0;
  const auto middle = all.begin() + std::ssize(all) / 2;
  std::ranges::nth_element(all, middle);
  return *middle;
}

// Returns the median over several passes for each kind of block. The median ignores a disturbance of a single
// pass. A disturbance of every second pass changes it, as it should, since it will slow down the run too.
std::vector<BlockSeconds> medians(const std::vector<std::vector<BlockSeconds>>& passes, size_t kinds) {
  std::vector<BlockSeconds> all(kinds);
  for (size_t k = 0; k < kinds; ++k) {
    for (const auto part : {&BlockSeconds::forward, &BlockSeconds::backward, &BlockSeconds::backward_more, &BlockSeconds::backward_input}) {
      std::vector<double> seconds;
      for (const auto& pass : passes) {
        if (pass[k].*part > 0) seconds.push_back(pass[k].*part);
      }
      all[k].*part = median(std::move(seconds));
    }
  }
  return all;
}

std::vector<BlockSeconds> time_chain(Chain& chain, bool accumulates) {
  chain.pass(true);  // the first pass touches all memory for the first time, so it is not timed
  std::vector<std::vector<BlockSeconds>> passes;
  double spent = 0;
  for (int rounds = 0; rounds < kLeastPasses || spent < kTimedSeconds; ++rounds) {
    for (const bool first : {true, false}) {
      if (!first && !accumulates) continue;
      passes.push_back(chain.pass(first));
      spent += total(passes.back());
    }
  }
  std::vector<BlockSeconds> all = medians(passes, passes.front().size());
  for (BlockSeconds& s : all) s.backward_more = accumulates ? s.backward_more : s.backward;
  return all;
}

// Returns the seconds by kind of block. Returns an empty list if there is not enough memory.
std::vector<BlockSeconds> time_rows(const PlanRequest& r, const Kinds& kinds, i64 rows, Device device, Tf32 tf32, ThreadPool& threads,
                                    MemoryPool& pool) {
  try {
    Allocation slab = pool.allocate(slab_bytes(r, kinds, rows), "probe: activations");
    Arena memory(slab.data(), slab.bytes());
    std::optional<GpuQueue> queue;
    if (device.is_cuda()) queue.emplace(device);
    const Stream stream{device, &threads, &memory, queue ? queue->handle() : nullptr, tf32};
    const StreamScope scope(stream);
    Chain chain(r, kinds, rows, queue ? &*queue : nullptr);
    chain.take(pool, {slab.data(), static_cast<size_t>(slab.bytes())});
    return time_chain(chain, r.scheduling.micro_batches > 1);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::refused) throw;
    return {};
  }
}

// Corrects the times of the last block, which were measured with `rows` rows, as if the block had kept the logits.
// Each part of the backward that computed the logits again took about one forward longer, and this time is subtracted.
void without_logits_again(BlockSeconds& last, const PlanRequest& r, i64 rows) {
  const Stream stream{.device = r.meta()};
  const StreamScope scope(stream);
  if (r.model->blocks.back()->logits_again_bytes(rows * r.sequence_length) == 0) return;
  const int parts = last.backward_input > 0 ? 2 : 1;
  for (double* whole : {&last.backward, &last.backward_more}) *whole = std::max(0.0, *whole - parts * last.forward);
  last.backward_input = std::max(0.0, last.backward_input - last.forward);
}

}  // namespace

std::vector<BlockSeconds> time_blocks(const PlanRequest& r, Device device, Tf32 tf32, ThreadPool& threads, i64 budget_bytes, double flops,
                                      i64& peak_bytes) {
  const Kinds kinds = kinds_of(r);
  if (pass_flops(r, kinds, 1) > kMostRowSeconds * kExpectedShare * flops) return {};
  MemoryPool pool("probe", budget_bytes, "", device.is_cuda() ? gpu_memory(device.index, budget_bytes) : system_memory());
  // Models that do not read tokens need a batch of two samples: a block may reduce a sample to one element, and batch norm's variance of a
  // single element is undefined.
  i64 rows = r.model->reads_tokens() ? 1 : std::min<i64>(2, r.micro_batch_size);
  std::vector<BlockSeconds> timed = time_rows(r, kinds, rows, device, tf32, threads, pool);
  if (timed.empty()) return {};
  i64 more = r.micro_batch_size;
  while (more > rows && total(timed) * static_cast<double>(more) > static_cast<double>(rows) * kMostPassSeconds) more /= 2;
  for (; more > rows; more /= 2) {  // halves the number of rows until there is enough memory
    std::vector<BlockSeconds> larger = time_rows(r, kinds, more, device, tf32, threads, pool);
    if (larger.empty()) continue;
    timed = std::move(larger);
    rows = more;
    break;
  }
  peak_bytes = pool.peak_bytes();
  without_logits_again(timed[kinds.of_block.back()], r, rows);
  std::vector<BlockSeconds> all;
  const double scale = static_cast<double>(r.micro_batch_size) / static_cast<double>(rows);
  for (size_t kind : kinds.of_block) {
    const BlockSeconds& t = timed[kind];
    all.push_back({scale * t.forward, scale * t.backward, scale * t.backward_more, scale * t.backward_input});
  }
  return all;
}

}  // namespace spillway::trainer

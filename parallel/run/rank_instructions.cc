// What each instruction of a Program means to a rank.
#include <algorithm>
#include <numeric>

#include "device/copy.h"
#include "device/transfer.h"
#include "kernels/accumulate.h"
#include "optim/adamw_gpu.h"
#include "parallel/run/gradient_rounding.h"
#include "parallel/run/rank.h"
#include "parallel/state/stopwatch.h"

namespace spillway::parallel {
namespace {

Tensor flat_view(std::byte* data, i64 elems, DType dtype, Device device) {
  auto storage = Storage::vacant(device, elems * size_of(dtype));
  storage->fill(data);
  return Tensor(std::move(storage), 0, Shape{elems}, dtype);
}

}  // namespace

double Rank::perform(const Instruction& i) {
  if (!lanes_) return carry_out(i);
  const Stream lane{stream_.device, stream_.threads, input_stream_.memory, queue(i.lane)};
  const StreamScope scope(lane);
  return lanes_->perform(i, stays_on_gpu(i), [&] { return carry_out(i); });
}

// All of it is put on the lane's queue.
bool Rank::stays_on_gpu(const Instruction& i) const {
  if (!lanes_) return false;
  switch (i.op) {
    case Op::Forward:
    case Op::Backward:
    case Op::BackwardInput:
    case Op::BackwardWeight:
    case Op::Release:
    case Op::Accumulate:
    case Op::AddTied:
    case Op::Reduce:
      return true;
    case Op::Fetch:
    case Op::Evict: {
      const auto& tiers = i.what == What::weights ? plan_.placement.parameters : plan_.placement.gradients;
      return i.what != What::activations && tiers[i.group] != Tier::nvme;
    }
    case Op::Step:
      return !snapshot_ && stepper_.stays_on_gpu(plan_.layout.buckets[i.bucket], i.in.bytes > 0);
    default:
      return false;
  }
}

double Rank::carry_out(const Instruction& i) {
  switch (i.op) {
    case Op::Step:
      return step(i);
    case Op::Fetch:
    case Op::Evict: {
      std::optional<StreamScope> all_threads;
      if (i.lane == Lane::compute) all_threads.emplace(stream_);
      return i.op == Op::Fetch ? fetch(i) : evict(i);
    }
    case Op::Gather:
      return microseconds_of([&] { gather(i); });
    case Op::Exchange:
      return microseconds_of([&] { exchange(i); });
    case Op::SendActivation:
    case Op::SendGradient:
    case Op::SendTied:
      return send(i);
    case Op::ReceiveActivation:
    case Op::ReceiveGradient:
    case Op::ReceiveTied:
      return receive(i);
    case Op::Land:
      return microseconds_of([&] { i.group == kNone ? stepper_.drain() : stepper_.land(i.group); });
    case Op::Commit:
      return microseconds_of([&] { commit(); });
    default:
      compute(i);
      return 0;
  }
}

void Rank::compute(const Instruction& i) {
  switch (i.op) {
    case Op::Load:
      return load_batches();
    case Op::Forward: {
      const StreamScope scope(stream_);
      runner_.forward(i, memory(i));
      return count_host(i);
    }
    case Op::Backward:
    case Op::BackwardInput:
    case Op::BackwardWeight:
      return backward(i);
    case Op::Release:
      return drop_group(i.group);
    case Op::Accumulate:
    case Op::AddTied:
      return add_gradients(i);
    case Op::Reduce:
      return reduce(i);
    case Op::AgreeNorm:
      return agree();
    case Op::Publish:
      return publish();
    default:
      return;
  }
}

void Rank::load_batches() {
  {
    const StreamScope scope(input_stream());
    batch_ = (*load_batch_)();
  }
  const StreamScope scope(input_stream_);
  for (MicroBatch& m : batch_.micro_batches) {
    if (!plan_.on_gpu()) break;
    for (Tensor* t : m.tensors()) {
      if (t->defined()) *t = to_current_device(*t, "inputs");
    }
  }
  if (!alone()) data_ranks_->all_reduce(std::as_writable_bytes(std::span(&batch_.counted_targets, 1)), DType::int64, Reduction::sum).wait();
  const double factor = 1.0 / static_cast<double>(batch_.counted_targets);
  const bool fp64 = format().weight == DType::f64;
  runner_.begin(batch_.micro_batches, nn::Mode::train, settings_.random,
                (fp64 ? factor : static_cast<float>(factor)) * settings_.loss_scale);
}

// What a computing instruction itself reads from host memory and copies there.
void Rank::count_host(const Instruction& i) {
  offload::Traffic& traffic = state_.traffic();
  constexpr auto kHost = static_cast<size_t>(Tier::host);
  traffic.read_bytes[kHost] += i.read_bytes[kHost];
  traffic.written_bytes[kHost] += i.written_bytes[kHost];
}

std::byte* Rank::gradient(const Slot& slot, GroupUse use) {
  if (slot.bytes > 0) return at(slot);
  return state_.gradients(use.group, use.use).view(whole(plan_.layout.groups[use.group]), state_.generation()).data();
}

void Rank::backward(const Instruction& i) {
  const StreamScope scope(stream_);
  const auto& uses = plan_.layout.blocks[i.block];
  for (size_t g = 0; makes_weight_gradients(i.op) && g < uses.size(); ++g) {
    if (!plan_.layout.groups[uses[g].group].frozen) accumulator_.place(uses[g], gradient(i.gradients[g], uses[g]), i.first);
  }
  runner_.backward(i, accumulator_, memory(i));
  count_host(i);
  accumulator_.finish();
}

// Slots hold the tiles named alone, what is resident all of them.
std::byte* Rank::gradient_tiles(const Slot& slot, GroupUse use, TileRange tiles) {
  if (slot.bytes > 0) return at(slot);
  return state_.gradients(use.group, use.use).view(tiles, state_.generation()).data();
}

void Rank::add_gradients(const Instruction& i) {
  const StreamScope scope(stream_);
  const auto view = [&](const Slot& slot, u8 use) {
    return flat_view(gradient_tiles(slot, {i.group, use}, i.tiles), i.tiles.count() * kTileElems, format().gradient, stream_.device);
  };
  if (i.tiles.count() > 0) kernels::accumulate(view(i.out, 0), view(i.in, i.use));
}

void Rank::reduce(const Instruction& i) {
  if (i.tiles.count() == 0) return;
  const StreamScope scope(stream_);
  const GroupUse use{i.group, 0};
  const bool leaves = i.in.bytes > 0 && !plan_.residency[i.group].gradients.beside;
  std::byte* base = gradient_tiles(i.in, use, i.tiles);
  std::byte* home = leaves ? gradient_tiles({}, use, i.tiles) : nullptr;
  const std::span<double> sums =
      std::span(square_sums_[i.group]).subspan(static_cast<size_t>(i.tiles.begin), static_cast<size_t>(i.tiles.count()));
  if (plan_.on_gpu()) {
    reduce_on_gpu(base, home, plan_.resting_gradient(use), i);
  } else if (plan_.scheduling.round_gradients) {
    const DType resting = plan_.resting_gradient(use);
    round_gradient(base, resting, sums);
    if (leaves) copy_past_caches(home, base, i.tiles.count() * kTileElems * size_of(resting));
  } else {
    sum_squares(base, home, sums);
  }
  count_host(i);
}

void Rank::reduce_on_gpu(std::byte* base, std::byte* home, DType resting, const Instruction& i) {
  const i64 tiles = i.tiles.count(),
            first = std::accumulate(plan_.layout.model_tiles.begin(), plan_.layout.model_tiles.begin() + i.group, i64{0}) + i.tiles.begin;
  if (plan_.scheduling.round_gradients) round_gradient_on_gpu(base, resting, tiles);
  optim::tile_square_sums_on_gpu(base, resting, tiles, reinterpret_cast<double*>(sums_.data()) + first);
  reduced_.push_back({i.group, i.tiles, first});
  if (home) lanes_->queue(i.lane).copy(home, base, tiles * kTileElems * size_of(resting));
}

// What the GPU has summed since the last time.
void Rank::take_sums() {
  if (reduced_.empty()) return;
  std::vector<double> all(static_cast<size_t>(plan_.tile_sums));
  transfer(reinterpret_cast<std::byte*>(all.data()), sums_.data(), std::ssize(all) * static_cast<i64>(sizeof(double)));
  for (const Reduced& r : reduced_) std::copy_n(all.begin() + r.first, r.tiles.count(), square_sums_[r.group].begin() + r.tiles.begin);
  reduced_.clear();
}

double Rank::sum_losses() const {
  if (!plan_.on_gpu() || !has_last_block()) return runner_.loss_sum();
  const StreamScope scope(stream_);
  std::vector<double> all(runner_.micro_batches());
  transfer(reinterpret_cast<std::byte*>(all.data()), reinterpret_cast<const std::byte*>(losses()),
           std::ssize(all) * static_cast<i64>(sizeof(double)));
  return std::accumulate(all.begin(), all.end(), 0.0);
}

// A tile that goes home does so while it is in the cache.
void Rank::sum_squares(const std::byte* base, std::byte* home, std::span<double> sums) const {
  const bool fp64 = format().gradient == DType::f64;
  const i64 tile_bytes = kTileElems * size_of(format().gradient);
  stream_.run(std::ssize(sums), [&](i64 tile, int) {
    const auto sum = [&](const auto* elements) { return optim::tile_square_sum(std::span(elements, static_cast<size_t>(kTileElems))); };
    const std::byte* from = base + tile * tile_bytes;
    sums[static_cast<size_t>(tile)] = fp64 ? sum(reinterpret_cast<const double*>(from)) : sum(reinterpret_cast<const float*>(from));
    if (home) copy_past_caches(home + tile * tile_bytes, from, tile_bytes);
  });
}

double Rank::step(const Instruction& i) {
  if (steps_ == Steps::idle) return 0;
  const StreamScope scope(steps_ == Steps::beside_compute || plan_.on_gpu() ? beside_stream_ : stream_);
  const auto gradient = i.in.bytes > 0 ? bytes(i.in) : std::span<std::byte>();
  return stepper_.step(plan_.layout.buckets[i.bucket], i.tiles, update_, step_from_, gradient);
}

// A head whose deferred Steps had nothing to do has nothing to commit.
void Rank::commit() {
  stepper_.drain();
  if (steps_ != Steps::idle) state_.commit(step_from_ + 1, record_);
}

void Rank::publish() {
  state_.publish();
  if (plan_.slots(Tier::device) > 1) show_resident_weights();
}

}  // namespace spillway::parallel

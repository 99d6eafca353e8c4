// What each instruction of a Program means to a rank.
#include "kernels/accumulate.h"
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
  return device_.lanes->perform(i, [&] { return carry_out(i); });
}

double Rank::carry_out(const Instruction& i) {
  switch (i.op) {
    case Op::Step:
      return step(i);
    case Op::Fetch:
    case Op::Evict: {
      std::optional<StreamScope> all_threads;
      if (i.lane == Lane::compute) all_threads.emplace(device_.streams.compute);
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
      const StreamScope scope(device_.streams.compute);
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
  const StreamScope scope(device_.streams.inputs);
  for (MicroBatch& m : batch_.micro_batches) device_.copies->take_in(m);
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
  const StreamScope scope(device_.streams.compute);
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
  const StreamScope scope(device_.streams.compute);
  const auto view = [&](const Slot& slot, u8 use) {
    return flat_view(gradient_tiles(slot, {i.group, use}, i.tiles), i.tiles.count() * kTileElems, format().gradient,
                     device_.streams.compute.device);
  };
  if (i.tiles.count() > 0) kernels::accumulate(view(i.out, 0), view(i.in, i.use));
}

void Rank::reduce(const Instruction& i) {
  if (i.tiles.count() == 0) return;
  const StreamScope scope(device_.streams.compute);
  const GroupUse use{i.group, 0};
  const bool leaves = i.in.bytes > 0 && !moves_beside(plan_.scheduling, plan_.placement.gradients[i.group]);
  std::byte* base = gradient_tiles(i.in, use, i.tiles);
  std::byte* home = leaves ? gradient_tiles({}, use, i.tiles) : nullptr;
  const std::span<double> sums =
      std::span(square_sums_[i.group]).subspan(static_cast<size_t>(i.tiles.begin), static_cast<size_t>(i.tiles.count()));
  device_.sums->reduce(i, {base, home, plan_.resting_gradient(use), sums});
  count_host(i);
}

double Rank::sum_losses() const {
  const StreamScope scope(device_.streams.compute);
  return device_.sums->loss_sum(runner_);
}

double Rank::step(const Instruction& i) {
  if (steps_ == Steps::idle) return 0;
  const StreamScope scope(steps_ == Steps::beside_compute ? device_.streams.step_beside : device_.streams.step);
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

#include "parallel/rank.h"

#include <cmath>

#include "base/error.h"
#include "kernels/accumulate.h"

namespace spillway::parallel {
namespace {

TileRange whole(const offload::Blob& blob) { return {0, blob.tiles()}; }

Tensor flat_view(std::byte* data, i64 elems, DType dtype, Device device) {
  auto storage = Storage::vacant(device, elems * size_of(dtype));
  storage->fill(data);
  return Tensor(std::move(storage), 0, Shape{elems}, dtype);
}

template <class T>
void write_elements(const Rank::Source& source, const nn::Parameter& p, i64 begin, std::span<std::byte> out) {
  constexpr i64 kPiece = 4096;
  double wide[kPiece];
  T* to = reinterpret_cast<T*>(out.data());
  const i64 n = static_cast<i64>(out.size() / sizeof(T));
  for (i64 at = 0; at < n; at += kPiece) {
    const i64 count = std::min(kPiece, n - at);
    source(p, begin + at, std::span(wide, static_cast<size_t>(count)));
    for (i64 i = 0; i < count; ++i) to[at + i] = static_cast<T>(wide[i]);
  }
}

}  // namespace

Rank::Rank(const nn::Sequential& model, const Plan& plan, const Resources& resources)
    : model_(model),
      plan_(plan),
      state_(plan, resources),
      moving_(resources.device->allocate(plan.moving_slab_bytes, "weights and gradients in motion")),
      activation_slab_(resources.device->allocate(plan.activation_slab_bytes, "activations")),
      activations_(activation_slab_.data(), plan.activation_slab_bytes),
      stream_{Device::cpu(), resources.threads, &activations_},
      input_stream_{Device::cpu(), resources.threads, resources.device},
      runner_(model),
      accumulator_(plan.layout, plan.scheduling.dtype),
      stepper_(plan, state_) {
  for (const Group& g : plan.layout.groups) {
    square_sums_.emplace_back(static_cast<size_t>(g.elems / kTileElems));
    if (plan.placement.parameters[g.id] != Tier::device) continue;
    fill_group(g.id, state_.weights(g.id).view(whole(state_.weights(g.id)), 0).data());
  }
}

Rank::~Rank() {
  for (const auto& p : model_.parameters) {
    if (p->storage->resident()) p->storage->drop();
  }
}

void Rank::fill_group(u16 group, std::byte* base) {
  for (const Segment& s : plan_.layout.groups[group].segments) {
    model_.parameters[s.parameter]->storage->fill(base + s.begin * size_of(plan_.scheduling.dtype));
  }
}

void Rank::drop_group(u16 group) {
  for (const Segment& s : plan_.layout.groups[group].segments) model_.parameters[s.parameter]->storage->drop();
}

void Rank::load(const Source& source) {
  const i64 size = size_of(plan_.scheduling.dtype);
  const bool fp64 = plan_.scheduling.dtype == DType::f64;
  for (const Group& g : plan_.layout.groups) {
    state_.fill(What::weights, g.id, [&](TileRange range, std::span<std::byte> out) {
      const i64 first = range.begin * kTileElems;
      stream_.run(range.count(), [&](i64 tile, int) {
        const i64 from = first + tile * kTileElems;
        for_segments(g, from, from + kTileElems, [&](i64 begin, i64 end, const Segment* s) {
          const auto piece = out.subspan(static_cast<size_t>((begin - first) * size), static_cast<size_t>((end - begin) * size));
          if (!s) return std::fill(piece.begin(), piece.end(), std::byte{0});
          const nn::Parameter& p = *model_.parameters[s->parameter];
          fp64 ? write_elements<double>(source, p, begin - s->begin, piece) : write_elements<float>(source, p, begin - s->begin, piece);
        });
      });
    });
  }
}

void Rank::perform(const Instruction& i) {
  switch (i.op) {
    case Op::Load: {
      const StreamScope scope(input_stream_);
      batch_ = (*load_batch_)();
      const double factor = 1.0 / static_cast<double>(batch_.counted_targets);
      const bool fp64 = plan_.scheduling.dtype == DType::f64;
      runner_.begin(batch_.micro_batches, nn::Mode::train, settings_.random, fp64 ? factor : static_cast<float>(factor));
      return;
    }
    case Op::Fetch:
      return fetch(i);
    case Op::Forward: {
      const StreamScope scope(stream_);
      return runner_.forward(i);
    }
    case Op::Backward:
      return backward(i);
    case Op::Release:
      return drop_group(i.group);
    case Op::AddTied:
      return add_tied(i);
    case Op::Reduce:
      return reduce(i);
    case Op::Evict:
      return evict(i);
    case Op::AgreeNorm:
      return;
    case Op::Step: {
      const StreamScope scope(stream_);
      return stepper_.step(plan_.layout.buckets[i.bucket], settings_.update);
    }
    case Op::Commit:
      return stepper_.drain();
    case Op::Publish:
      return state_.publish();
  }
}

void Rank::fetch(const Instruction& i) {
  const std::span<std::byte> slot(at(i.out), static_cast<size_t>(group_bytes(i.group)));
  offload::Blob& blob = i.what == What::weights ? state_.weights(i.group) : state_.gradients(i.group, i.use);
  blob.read(whole(blob), state_.generation(), slot).wait();
  if (i.what == What::weights) fill_group(i.group, slot.data());
}

void Rank::evict(const Instruction& i) {
  offload::Blob& blob = state_.gradients(i.group, i.use);
  blob.write(whole(blob), state_.generation(), std::span<const std::byte>(at(i.in), static_cast<size_t>(group_bytes(i.group)))).wait();
}

std::byte* Rank::gradient(const Slot& slot, GroupUse use) {
  if (slot.bytes > 0) return at(slot);
  offload::Blob& blob = state_.gradients(use.group, use.use);
  return blob.view(whole(blob), state_.generation()).data();
}

void Rank::backward(const Instruction& i) {
  const StreamScope scope(stream_);
  const auto& uses = plan_.layout.blocks[i.block];
  for (size_t g = 0; g < uses.size(); ++g) accumulator_.place(uses[g], gradient(i.gradients[g], uses[g]), i.first);
  runner_.backward(i, accumulator_);
  accumulator_.finish();
}

void Rank::add_tied(const Instruction& i) {
  const StreamScope scope(stream_);
  const Group& group = plan_.layout.groups[i.group];
  const auto view = [&](const Slot& slot, u8 use) {
    return flat_view(gradient(slot, {i.group, use}), group.elems, plan_.scheduling.dtype, stream_.device);
  };
  kernels::accumulate(view(i.out, 0), view(i.in, i.use));
}

void Rank::reduce(const Instruction& i) {
  const std::byte* base = gradient(i.in, {i.group, 0});
  std::vector<double>& sums = square_sums_[i.group];
  const bool fp64 = plan_.scheduling.dtype == DType::f64;
  stream_.run(static_cast<i64>(sums.size()), [&](i64 tile, int) {
    const auto sum = [&](auto* elements) {
      return optim::tile_square_sum(std::span(elements + tile * kTileElems, static_cast<size_t>(kTileElems)));
    };
    sums[static_cast<size_t>(tile)] = fp64 ? sum(reinterpret_cast<const double*>(base)) : sum(reinterpret_cast<const float*>(base));
  });
}

StepResult Rank::train_step(const std::function<StepBatch()>& load_batch, const StepSettings& settings) {
  require(plan_.training, "[rank] train_step under a plan without training");
  load_batch_ = &load_batch;
  settings_ = settings;
  const auto run = [this](const Instruction& i) { perform(i); };
  head_timings_ = execute(plan_.train.head, run);
  double squares = 0;
  for (const auto& sums : square_sums_) {
    for (double s : sums) squares += s;
  }
  StepResult result;
  result.loss = runner_.loss_sum() / static_cast<double>(batch_.counted_targets);
  result.grad_norm = std::sqrt(squares);
  result.skipped = !std::isfinite(result.grad_norm);
  const double factor = optim::clip_factor(result.grad_norm, settings.gradient_clipping);
  result.clipped = !result.skipped && factor < 1;
  settings_.update.gradient_scale = factor;
  batch_ = {};
  tail_timings_ = execute(result.skipped ? plan_.train.skip : plan_.train.commit, run);
  last_tail_was_commit_ = !result.skipped;
  return result;
}

void Rank::run_forward(const MicroBatch& batch, nn::Mode mode, i64 position) {
  forward_batch_ = {batch};
  runner_.begin(forward_batch_, mode, {}, 1, position);
  execute(plan_.forward.head, [this](const Instruction& i) { perform(i); });
}

double Rank::evaluate(const MicroBatch& batch) {
  run_forward(batch, nn::Mode::evaluate, 0);
  runner_.take_output(0);
  forward_batch_.clear();
  return runner_.loss_sum();
}

std::vector<double> Rank::logits(const MicroBatch& batch, i64 position) {
  run_forward(batch, nn::Mode::generate, position);
  const Tensor out = runner_.take_output(0);
  forward_batch_.clear();
  std::vector<double> wide(static_cast<size_t>(out.elems()));
  for (size_t i = 0; i < wide.size(); ++i) wide[i] = out.dtype() == DType::f64 ? out.data<double>()[i] : out.data<float>()[i];
  return wide;
}

}  // namespace spillway::parallel

#include "parallel/state/stepper.h"

#include <algorithm>

#include "device/stream.h"
#include "optim/average_tile.h"
#include "optim/rules/tile.h"
#include "optim/tile_values.h"
#include "parallel/state/stopwatch.h"

namespace spillway::parallel {
namespace {

constexpr i64 kTilesInPlace = 64;

}  // namespace

double Stepper::step(const Bucket& bucket, TileRange tiles, const Update& u, u64 from, std::span<std::byte> gradient) {
  waited_us_ = 0;
  require(rule_of(u.settings) == plan_.scheduling.format.rule,
          "[optimizer] expected settings of the optimizer rule for which the plan stores state");
  AllScalars all = scalars_of(bucket, u);
  if (plan_.steps_on_gpu(bucket.group, !gradient.empty())) {
    step_on_gpu(bucket, tiles, all, u, from, gradient);
    return 0;
  }
  if (plan_.streams_step(bucket.group, !gradient.empty())) {
    go_over(bucket, tiles, from, gradient, Pass::update, [&](Chunk chunk) { stream(bucket, std::move(chunk), all, u); });
    while (!on_gpu_.empty()) take_back();
    return waited_us_;
  }
  if (plan_.layout.groups[bucket.group].by_parameter) all.direction = direction_of(bucket, tiles, all, u, from, gradient);
  go_over(bucket, tiles, from, gradient, Pass::update, [&](Chunk chunk) {
    update_all(bucket, chunk, all, u);
    close(bucket, std::move(chunk));
  });
  return waited_us_;
}

void Stepper::go_over(const Bucket& bucket, TileRange tiles, u64 from, std::span<std::byte> gradient, Pass pass,
                      const std::function<void(Chunk)>& finish) {
  const i64 step = chunk_tiles(bucket.group, plan_.streams_step(bucket.group, !gradient.empty()));
  std::deque<Chunk> ahead;
  const auto finish_one = [&] {
    Chunk chunk = std::move(ahead.front());
    ahead.pop_front();
    waited_us_ += microseconds_of([&] { chunk.reads.wait(); });
    finish(std::move(chunk));
  };
  for (i64 t = tiles.begin; t < tiles.end; t += step) {
    ahead.push_back(open(bucket, {t, std::min(tiles.end, t + step)}, from, gradient, pass));
    if (ahead.size() > read_ahead()) finish_one();
  }
  while (!ahead.empty()) finish_one();
}

// Returns the number of tiles that are updated at once. A chunk that passes through the staging ring, or of which a snapshot may want a
// copy, must fit into one of their buffers.
i64 Stepper::chunk_tiles(u16 group, bool streams) const {
  if (snapshot_) return plan_.chunk_tiles;
  if (!streams) return state_.staging() ? plan_.chunk_tiles : kTilesInPlace;
  const Placement& p = plan_.placement;
  const bool on_nvme = p.parameters[group] == Tier::nvme || p.gradients[group] == Tier::nvme || p.optimizer[group] == Tier::nvme;
  return on_nvme ? plan_.chunk_tiles : kStreamedTiles;
}

// Returns how many chunks are read ahead. One buffer of the staging ring holds the chunk that is computed. Reading ahead and writing
// share the other buffers, and writing gets the larger part.
size_t Stepper::read_ahead() const { return std::max<size_t>(2, static_cast<size_t>(plan_.staging_buffers - 1) * 2 / 5); }

Stepper::Chunk Stepper::open(const Bucket& bucket, TileRange range, u64 from, std::span<std::byte> gradient, Pass pass) {
  Chunk chunk;
  chunk.range = range;
  chunk.from = from;
  chunk.streams = plan_.streams_step(bucket.group, !gradient.empty());
  i64 used_bytes = 0;
  const bool updates = pass == Pass::update, reads_weight = plan_.scheduling.format.update_reads_weight();
  if (updates || (reads_weight && is_of_parameters(plan_.scheduling.format.rule)))
    chunk.weights = operand(chunk, state_.weights(bucket.group), used_bytes, reads_weight, updates);
  chunk.gradients = gradient.empty() ? operand(chunk, state_.gradients(bucket.group, 0), used_bytes, true, false)
                                     : given(chunk, bucket, gradient, used_bytes);
  if (offload::Blob* state = state_.optimizer(bucket.group)) chunk.state = operand(chunk, *state, used_bytes, true, updates);
  return chunk;
}

Stepper::Operand Stepper::given(Chunk& chunk, const Bucket& bucket, std::span<std::byte> gradient, i64& used_bytes) {
  const i64 tile_bytes = kTileElems * size_of(plan_.resting_gradient({bucket.group, 0}));
  const i64 first = plan_.stepped(plan_.layout.groups[bucket.group]).begin;
  auto bytes = gradient.subspan(static_cast<size_t>((chunk.range.begin - first) * tile_bytes),
                                static_cast<size_t>(chunk.range.count() * tile_bytes));
  if (state_.queues() && !chunk.streams) {
    const GpuQueue& queue = state_.queues()->to_host;
    const auto staged = staging(chunk, std::ssize(bytes), used_bytes);
    queue.copy(staged.data(), bytes.data(), std::ssize(bytes));
    chunk.reads.add(queue.moment());
    bytes = staged;
  }
  return {nullptr, tile_bytes, bytes, bytes, false, true, false, chunk.streams};
}

// Returns the next free bytes in the chunk's buffer of the ring. If the chunk has no buffer yet, first acquires one.
std::span<std::byte> Stepper::staging(Chunk& chunk, i64 bytes, i64& used_bytes) {
  if (!chunk.lease) {
    // Chunks that were read ahead, the chunk that is being updated and those on the GPU each hold a buffer, so writes may use only the
    // other buffers.
    while (writing_.size() + on_gpu_.size() + read_ahead() + 1 > static_cast<size_t>(state_.staging()->buffers())) {
      if (writing_.empty()) take_back();
      waited_us_ += microseconds_of([&] { writing_.front().writes.wait(); });
      writing_.pop_front();
    }
    chunk.lease.emplace(state_.staging()->acquire());
  }
  const auto span = chunk.lease->bytes().subspan(static_cast<size_t>(used_bytes), static_cast<size_t>(bytes));
  used_bytes += bytes;
  return span;
}

Stepper::Operand Stepper::operand(Chunk& chunk, offload::Blob& blob, i64& used_bytes, bool read, bool written) {
  const i64 bytes = chunk.range.count() * blob.tile_bytes();
  const bool there = chunk.streams && blob.on_gpu() && !snapshot_;  // a snapshot may want a copy, which the CPU makes
  if (!blob.is_staged() || there) {
    const auto tier = static_cast<size_t>(blob.tier());
    if (blob.tier() == Tier::host) {
      if (read) state_.traffic().read_bytes[tier] += bytes;
      if (written) state_.traffic().written_bytes[tier] += bytes;
    }
    return {&blob, blob.tile_bytes(), blob.view(chunk.range, chunk.from), blob.view(chunk.range, chunk.from + 1), false, read, written,
            there};
  }
  const auto span = staging(chunk, bytes, used_bytes);
  if (read) chunk.reads.add(blob.read(chunk.range, chunk.from, span));
  return {&blob, blob.tile_bytes(), span, span, true, read, written};
}

optim::StateFormat Stepper::format_of(const Group& group) const {
  optim::StateFormat format = plan_.scheduling.format_of(group);
  format.gradient = plan_.resting_gradient({group.id, 0});
  return format;
}

// Computes the scalars of an update. Running statistics are updated by SGD. For a statistic r, the micro-batches' own values are summed in
// s, and r must become r + momentum (s / count - r). That is SGD with s / count as the gradient, a weight decay of -1 and a learning rate
// of -momentum.
Stepper::AllScalars Stepper::scalars_of(const Bucket& bucket, const Update& u) const {
  const double count = static_cast<double>(plan_.scheduling.micro_batches * plan_.scheduling.sharding.ranks);
  const Group& group = plan_.layout.groups[bucket.group];
  const optim::RuleSettings settings = group.by_parameter ? u.settings : beside_matrices(u.settings);
  const bool matrix = group.by_parameter && is_of_matrices(plan_.scheduling.format.rule);
  const optim::Matrices shape = matrix ? group.segment_of(bucket).matrices : optim::Matrices();
  const double scale = matrix ? matrix_scale(settings, shape.rows, shape.columns) : 1;
  const auto of = [&](double learning_rate, double weight_decay, i64 updates_before = 0) {
    optim::Scalars<double> scalars = optim::make_scalars(settings, learning_rate, weight_decay, u.t - updates_before, u.gradient_scale);
    scalars.step_size *= scale;
    return scalars;
  };
  const double decay = weight_decay_of(settings);
  AllScalars all{{{of(u.learning_rate, decay), of(u.learning_rate, 0)}},
                 optim::make_scalars(optim::SgdSettings{.lr = -nn::kStatisticMomentum, .weight_decay = -1}, u.t, 1 / count)};
  for (const OwnRates& own : u.own_rates) {
    all.rates.push_back({of(own.learning_rate, own.weight_decay.value_or(decay), own.updates_before),
                         of(own.learning_rate, own.weight_decay.value_or(0), own.updates_before)});
  }
  return all;
}

const optim::Scalars<double>& Stepper::scalars_for(const Segment& s, const AllScalars& all, const Update& u) {
  const Scalars& own = all.rates[s.parameter < u.own_rates_of.size() ? u.own_rates_of[s.parameter] : 0];
  return s.decay ? own.decayed : own.plain;
}

std::vector<optim::TilePart> Stepper::parts_of(const Group& group, i64 begin, i64 end, const AllScalars& scalars, const Update& u) {
  std::vector<optim::TilePart> parts;
  for_segments(group, begin, end, [&](i64, i64 until, const Segment* s) {
    if (!s) return parts.push_back({until - begin, nullptr});
    if (group.statistics) return parts.push_back({until - begin, &scalars.statistics});
    parts.push_back({until - begin, &scalars_for(*s, scalars, u)});
  });
  return parts;
}

optim::RoundingNoise Stepper::noise_of(u16 group, const Update& u, i64 first_element) {
  return {u.random.derive("moments", group), static_cast<u64>(u.t), static_cast<u64>(first_element)};
}

void Stepper::update_all(const Bucket& bucket, const Chunk& chunk, const AllScalars& scalars, const Update& u) {
  std::optional<Snapshot::Copy> copy = snapshot_ ? snapshot_->before(bucket, chunk.range, chunk.from) : std::nullopt;
  Stream::current().run(chunk.range.count(), [&](i64 tile, int) { update(bucket, chunk, tile, scalars, u, copy ? &*copy : nullptr); });
  if (copy) snapshot_->hand_over(std::move(*copy));
}

void Stepper::verify(const Operand& o, const Chunk& chunk, i64 tile) {
  const i64 at = chunk.range.begin + tile;
  if (o.staged && o.read) state_.verify(*o.blob, {at, at + 1}, chunk.from, o.of(tile, o.old));
}

void Stepper::look_at(const Chunk& chunk, i64 tile, Snapshot::Copy* copy) {
  for (const Operand* o : {&chunk.weights, &chunk.gradients, &chunk.state}) verify(*o, chunk, tile);
  if (!copy) return;
  const auto weights = chunk.weights.of(tile, chunk.weights.old), state = chunk.state.of(tile, chunk.state.old);
  if (chunk.weights.staged && !chunk.weights.read) optim::weights_of_master(plan_.scheduling.format, state.data(), weights.data());
  copy->put(tile, weights, state);
}

// Updates one tile while its bytes are in the cache: verifies it, copies it for a snapshot, updates it and stamps it. The result is bitwise
// the same for every number of threads and every size of chunks.
void Stepper::update(const Bucket& bucket, const Chunk& chunk, i64 tile, const AllScalars& scalars, const Update& u, Snapshot::Copy* copy) {
  const TileRange range{chunk.range.begin + tile, chunk.range.begin + tile + 1};
  look_at(chunk, tile, copy);
  const Group& group = plan_.layout.groups[bucket.group];
  const i64 begin = range.begin * kTileElems;
  const std::vector<optim::TilePart> parts = parts_of(group, begin, begin + kTileElems, scalars, u);
  const auto at = [&](const Operand& o, std::span<std::byte> all) { return o.of(tile, all).data(); };
  const optim::TileOperands operands{
      at(chunk.gradients, chunk.gradients.old), at(chunk.weights, chunk.weights.old),
      at(chunk.state, chunk.state.old),         at(chunk.weights, chunk.weights.next),
      at(chunk.state, chunk.state.next),        scalars.direction ? scalars.direction + direction_bytes(bucket, range.begin) : nullptr};
  const optim::RoundingNoise noise = noise_of(bucket.group, u, begin);
  const bool elsewhere = chunk.weights.old.data() != chunk.weights.next.data() && chunk.state.old.data() != chunk.state.next.data();
  const optim::StateFormat format = format_of(group);
  optim::update_tile(format, operands, parts, noise, u.isa, elsewhere);
  if (format.factors > 0) {
    const Segment& segment = group.segment_of(bucket);
    optim::put_factors(adafactor_step(format, segment), range.begin - bucket.begin / kTileElems, operands.new_state);
  }
  if (format.average)
    optim::average_tile(format, {operands.new_weight, operands.new_state, operands.state, operands.new_state}, u.average_decay);
  stamp(chunk, tile);
}

void Stepper::stamp(const Chunk& chunk, i64 tile) {
  const TileRange range{chunk.range.begin + tile, chunk.range.begin + tile + 1};
  for (const Operand* o : {&chunk.weights, &chunk.state}) {
    if (o->staged && o->written) o->blob->stamp(range, chunk.from + 1, o->of(tile, o->next));
  }
}

void Stepper::close(const Bucket& bucket, Chunk chunk) {
  if (!chunk.lease) return;
  Pending writes;
  for (const Operand* o : {&chunk.weights, &chunk.state}) {
    if (o->staged) writes.add(o->blob->write(chunk.range, chunk.from + 1, o->next));
  }
  writing_.push_back({bucket.group, std::move(*chunk.lease), std::move(writes)});
}

void Stepper::land(u16 group) {
  for (Written& w : writing_) {
    if (w.group == group) w.writes.wait();
  }
}

void Stepper::drain() {
  for (Written& w : writing_) w.writes.wait();
  writing_.clear();
}

}  // namespace spillway::parallel

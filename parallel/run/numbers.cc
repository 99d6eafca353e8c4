#include "parallel/run/numbers.h"

#include <algorithm>
#include <cmath>

#include "parallel/comm/collective.h"

namespace spillway::parallel {

Numbers::Numbers(Workplace& work) : work_(work) {
  if (!work.plan.training) return;
  told_ = work.memory.norm();
  std::ranges::fill(told_, 0);
  for (const i64 tiles : work.plan.layout.model_tiles) {
    square_sums_.push_back(told_.first(static_cast<size_t>(tiles)));
    told_ = told_.subspan(static_cast<size_t>(tiles));
  }
}

void Numbers::reduce(const Instruction& i) {
  if (i.tiles.count() == 0) return;
  const StreamScope scope(work_.streams().compute);
  const GroupUse use{i.group, 0};
  const bool leaves = i.in.bytes > 0 && !work_.plan.residency[i.group].gradients.beside;
  std::byte* base = work_.memory.gradient(i.in, use, i.tiles);
  std::byte* home = leaves ? work_.memory.gradient({}, use, i.tiles) : nullptr;
  const auto sums = square_sums_[i.group].subspan(static_cast<size_t>(i.tiles.begin), static_cast<size_t>(i.tiles.count()));
  work_.device.sums->reduce(i, {base, home, work_.plan.resting_gradient(use), sums});
  work_.count_host(i);
}

void Numbers::agree(double loss_sum) {
  work_.device.sums->take_square_sums();
  loss_sum_ = loss_sum;
  own_loss_finite_ = std::isfinite(loss_sum);
  if (work_.ranks.has_data()) agree_with_data_ranks();
  if (work_.ranks.has_pipeline()) agree_with_pipeline_ranks();
}

std::span<double> Numbers::part(const Parts& parts, int rank) const {
  constexpr i64 kEach = sizeof(double);
  return told_.subspan(static_cast<size_t>(parts[static_cast<size_t>(rank)] / kEach), static_cast<size_t>(part_of(parts, rank) / kEach));
}

std::span<std::byte> Numbers::all(const Parts& parts) const {
  return std::as_writable_bytes(told_).first(static_cast<size_t>(parts.back()));
}

void Numbers::agree_with_data_ranks() {
  const auto for_own = [&](int rank, auto&& body) {
    for (const Group& g : work_.plan.layout.groups) {
      if (work_.plan.has_steps(g) && work_.sharding().splits_state()) body(square_sums_[g.id], work_.sharding().part(g, rank));
    }
  };
  Parts parts{0};
  for (int r = 0; r < work_.sharding().ranks; ++r) {
    i64 count = 1;
    for_own(r, [&](std::span<double>, TileRange tiles) { count += tiles.count(); });
    parts.push_back(parts.back() + count * static_cast<i64>(sizeof(double)));
  }
  auto next = part(parts, work_.sharding().rank).begin();
  *next++ = loss_sum_;
  for_own(work_.sharding().rank,
          [&](std::span<double> sums, TileRange t) { next = std::copy(sums.begin() + t.begin, sums.begin() + t.end, next); });
  work_.ranks.data().all_gather(std::as_bytes(part(parts, work_.sharding().rank)), all(parts), parts).wait();
  next = told_.begin();
  loss_sum_ = 0;
  for (int r = 0; r < work_.sharding().ranks; ++r) {
    loss_sum_ += *next++;
    for_own(r, [&](std::span<double> sums, TileRange tiles) {
      std::copy_n(next, tiles.count(), sums.begin() + tiles.begin);
      next += tiles.count();
    });
  }
}

// Exchanges loss and sums of squares among pipeline ranks. The loss comes from the rank that holds the
// last block. The sums of squares of each group come from the rank that owns the group.
void Numbers::agree_with_pipeline_ranks() {
  const Layout& layout = work_.plan.layout;
  const int ranks = work_.plan.scheduling.pipeline.ranks;
  std::vector<std::vector<std::span<double>>> of_rank(static_cast<size_t>(ranks));
  of_rank[layout.rank_of.back()].push_back(std::span(&loss_sum_, 1));
  for (const Group& g : layout.groups) {
    if (!g.frozen) of_rank[layout.rank_of[g.owner_block]].push_back(square_sums_[g.id]);
  }
  Parts parts{0};
  for (const auto& spans : of_rank) {
    i64 count = 0;
    for (const auto& span : spans) count += std::ssize(span);
    parts.push_back(parts.back() + count * static_cast<i64>(sizeof(double)));
  }
  auto next = part(parts, layout.rank).begin();
  for (const auto& span : of_rank[layout.rank]) next = std::ranges::copy(span, next).out;
  work_.ranks.pipeline().all_gather(std::as_bytes(part(parts, layout.rank)), all(parts), parts).wait();
  next = told_.begin();
  for (const auto& spans : of_rank) {
    for (const auto& span : spans) {
      std::copy_n(next, span.size(), span.begin());
      next += std::ssize(span);
    }
  }
}

std::vector<u32> Numbers::not_finite() const {
  std::vector<u32> parameters;
  for (const Group& g : work_.plan.layout.groups) {
    for (const Segment& s : g.segments) {
      const auto begin = static_cast<size_t>(s.begin / kTileElems), end = static_cast<size_t>(ceil_div(s.begin + s.elems, kTileElems));
      const auto finite = [](double sum) { return std::isfinite(sum); };
      if (!g.frozen && !g.statistics && !std::ranges::all_of(square_sums_[g.id].subspan(begin, end - begin), finite))
        parameters.push_back(s.parameter);
    }
  }
  std::ranges::sort(parameters);
  return parameters;
}

StepResult Numbers::judge(const StepUnderWay& step, OptimizerOverlap overlap, double& factor) const {
  double squares = 0;
  for (const Group& g : work_.plan.layout.groups) {
    for (double s : square_sums_[g.id]) squares += g.statistics ? 0 : s;
  }
  const StepSettings& settings = step.settings;
  StepResult result;
  result.loss = loss_sum_ / static_cast<double>(step.batch.counted_targets);
  result.grad_norm = std::sqrt(squares) / settings.loss_scale;
  result.loss_scale = settings.loss_scale;
  result.counted_targets = step.batch.counted_targets;
  result.data_tokens = step.batch.data_tokens;
  result.skipped = !std::isfinite(result.grad_norm);
  result.own_loss_finite = own_loss_finite_;
  if (result.skipped) result.not_finite = not_finite();
  factor = optim::clip_factor(result.grad_norm, settings.gradient_clipping);
  result.clipped = !result.skipped && factor < 1;
  result.redo = result.clipped && overlap == OptimizerOverlap::backward;
  return result;
}

}  // namespace spillway::parallel

// Where a rank meets the other data-parallel ranks.
#include <algorithm>

#include "base/error.h"
#include "parallel/run/rank.h"

namespace spillway::parallel {

Dealt Rank::dealt(const Group& group, i64 tile_bytes) const { return {sharding().parts(group, 1), tile_bytes}; }

// Into a slot from where each rank has its part; or, after the Steps, into what every rank has whole.
void Rank::gather(const Instruction& i) {
  const bool stepped = i.out.bytes == 0;
  if (stepped && steps_ == Steps::idle) return;
  const Group& group = plan_.layout.groups[i.group];
  offload::Blob& blob = state_.weights(i.group);
  const i64 tile_bytes = blob.tile_bytes();
  const auto all = stepped ? blob.view(whole(group), step_from_ + 1) : bytes(i.out);
  std::span<const std::byte> mine = bytes(i.in);
  if (i.in.bytes == 0) mine = blob.view(i.tiles, stepped ? step_from_ + 1 : state_.generation());
  exchange_->gather(device_.lanes->queue(i.lane), mine, all.data(), dealt(group, tile_bytes));
  exchanged_bytes_ += std::ssize(all);
  if (!stepped) fill_group(i.group, all.data());
}

void Rank::exchange(const Instruction& i) {
  const Group& group = plan_.layout.groups[i.group];
  const DType dtype = format().gradient;
  const std::span<std::byte> all(gradient(i.in, {i.group, i.use}), static_cast<size_t>(group.elems * size_of(dtype)));
  if (sharding().splits_state()) {
    exchange_->sum_part(device_.lanes->queue(i.lane), all.data(), dtype, dealt(group, kTileElems * size_of(dtype)));
  } else {
    exchange_->sum(device_.lanes->queue(i.lane), all, dtype);
  }
  exchanged_bytes_ += std::ssize(all);
}

// Every rank gets every rank's loss and tile sums, and adds them in one order.
void Rank::agree() {
  device_.sums->take_square_sums();
  loss_sum_ = sum_losses();
  if (!alone()) agree_with_data_ranks();
  if (plan_.scheduling.pipeline.ranks > 1) agree_with_pipeline_ranks();
}

void Rank::agree_with_data_ranks() {
  const auto for_own = [&](int rank, auto&& body) {
    for (const Group& g : plan_.layout.groups) {
      if (plan_.has_state(g) && sharding().splits_state()) body(std::span(square_sums_[g.id]), sharding().part(whole(g).count(), rank));
    }
  };
  Parts parts{0};
  std::vector<double> all, mine{loss_sum_};
  for (int r = 0; r < sharding().ranks; ++r) {
    i64 count = 1;
    for_own(r, [&](std::span<double>, TileRange tiles) { count += tiles.count(); });
    parts.push_back(parts.back() + count * static_cast<i64>(sizeof(double)));
  }
  for_own(sharding().rank,
          [&](std::span<double> sums, TileRange t) { mine.insert(mine.end(), sums.begin() + t.begin, sums.begin() + t.end); });
  all.resize(static_cast<size_t>(parts.back()) / sizeof(double));
  data_ranks_->all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)), parts).wait();
  auto next = all.begin();
  loss_sum_ = 0;
  for (int r = 0; r < sharding().ranks; ++r) {
    loss_sum_ += *next++;
    for_own(r, [&](std::span<double> sums, TileRange tiles) {
      std::copy_n(next, tiles.count(), sums.begin() + tiles.begin);
      next += tiles.count();
    });
  }
}

// The loss is that of the last block's rank, each group's sums are its owner's.
void Rank::agree_with_pipeline_ranks() {
  const Layout& layout = plan_.layout;
  const int ranks = plan_.scheduling.pipeline.ranks;
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
  std::vector<double> all(static_cast<size_t>(parts.back()) / sizeof(double)), mine;
  for (const auto& span : of_rank[layout.rank]) mine.insert(mine.end(), span.begin(), span.end());
  pipeline_ranks_.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)), parts).wait();
  auto next = all.begin();
  for (const auto& spans : of_rank) {
    for (const auto& span : spans) {
      std::copy_n(next, span.size(), span.begin());
      next += std::ssize(span);
    }
  }
}

void Rank::tell_pipeline_ranks(std::span<std::byte> bytes) {
  if (plan_.scheduling.pipeline.ranks > 1) pipeline_ranks_.broadcast(bytes, plan_.layout.rank_of.back()).wait();
}

void Rank::tell_peers(const std::exception_ptr& error) const {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    for (Communicator* peers : peers_) {
      if (peers) peers->abort(e.what());
    }
  }
}

}  // namespace spillway::parallel

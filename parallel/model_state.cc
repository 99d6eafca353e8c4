#include "parallel/model_state.h"

#include <algorithm>
#include <deque>

#include "base/error.h"

namespace spillway::parallel {
namespace {

constexpr i64 kViewTiles = 64;  // tiles handed out at once where nothing has to be staged
constexpr size_t kReadAhead = 2;
constexpr const char* kGradients = "gradients";
constexpr const char* kActivations = "activations";

}  // namespace

ModelState::ModelState(const Plan& plan, const Resources& resources) : plan_(plan), resources_(resources) {
  if (plan.uses(Tier::nvme)) {
    require(resources.engine != nullptr, "[model state] the plan uses nvme, but no I/O engine was given");
    file_.emplace(offload::File::create(resources.scratch / "rank-0.tiles", plan.total[static_cast<size_t>(Tier::nvme)]));
  }
  const i64 tile = kTileElems * size_of(plan.scheduling.dtype);
  for (const Group& g : plan.layout.groups) {
    const i64 tiles = g.elems / kTileElems;
    weights_.push_back(make(plan.placement.parameters[g.id], "weights", tiles, tile));
    if (!plan.training) continue;
    for (size_t u = 0; u < g.uses.size(); ++u) {
      gradients_[{g.id, static_cast<u8>(u)}] = make(plan.placement.gradients[g.id], kGradients, tiles, tile);
    }
    optimizer_.push_back(make(plan.placement.optimizer[g.id], "optimizer state", tiles, 2 * tile));
  }
  if (plan.training) make_activations();
  if (plan.staging_buffers > 0) {
    staging_.emplace(*resources.host, static_cast<int>(plan.staging_buffers), plan.staging_buffer_bytes, "staging ring");
  }
}

void ModelState::make_activations() {
  const Scheduling& scheduling = plan_.scheduling;
  for (u16 b = 0; b < scheduling.spilled_bytes.size(); ++b) {
    if (plan_.placement.activations[b].tier != Tier::nvme || scheduling.spilled_bytes[b] == 0) continue;
    activations_[b] = make(Tier::nvme, kActivations, scheduling.live_micro_batches(), scheduling.spilled_bytes[b]);
  }
}

std::unique_ptr<offload::Blob> ModelState::make(Tier tier, const char* what, i64 tiles, i64 tile_bytes) {
  // Gradients and activations are rewritten before they are read again, in whichever generation: one slot.
  const int slots = what == kGradients || what == kActivations ? 1 : plan_.slots(tier);
  if (tier != Tier::nvme) {
    return offload::make_memory_blob(tier, tier == Tier::device ? *resources_.device : *resources_.host, what, tiles, tile_bytes, slots,
                                     traffic_);
  }
  auto blob = offload::make_file_blob(*resources_.engine, *file_, what, file_used_bytes_, tiles, tile_bytes, slots, traffic_);
  file_used_bytes_ += slots * blob->bytes();
  return blob;
}

std::vector<TileRange> ModelState::chunks(const offload::Blob& blob) const {
  const i64 step = blob.tier() == Tier::nvme ? staging_->buffer_bytes() / blob.tile_bytes() : kViewTiles;
  std::vector<TileRange> all;
  for (i64 t = 0; t < blob.tiles(); t += step) all.push_back({t, std::min(blob.tiles(), t + step)});
  return all;
}

void ModelState::scan(What what, u16 group, const std::function<void(TileRange, std::span<const std::byte>)>& body) {
  offload::Blob& from = blob(what, group);
  if (from.tier() != Tier::nvme) {
    for (const TileRange& r : chunks(from)) body(r, from.view(r, generation_));
    return;
  }
  struct Ahead {
    TileRange range;
    offload::StagingRing::Lease lease;
    Event read;
  };
  std::deque<Ahead> ahead;
  const auto finish_one = [&] {
    ahead.front().read.wait();
    const TileRange r = ahead.front().range;
    body(r, ahead.front().lease.bytes().first(static_cast<size_t>(r.count() * from.tile_bytes())));
    ahead.pop_front();
  };
  for (const TileRange& r : chunks(from)) {
    auto lease = staging_->acquire();
    const Event read = from.read(r, generation_, lease.bytes().first(static_cast<size_t>(r.count() * from.tile_bytes())));
    lease.busy_until(read);
    ahead.push_back({r, std::move(lease), read});
    if (ahead.size() > kReadAhead) finish_one();
  }
  while (!ahead.empty()) finish_one();
}

void ModelState::fill(What what, u16 group, const std::function<void(TileRange, std::span<std::byte>)>& body) {
  offload::Blob& to = blob(what, group);
  std::deque<std::pair<offload::StagingRing::Lease, Event>> writing;
  for (const TileRange& r : chunks(to)) {
    if (to.tier() != Tier::nvme) {
      body(r, to.view(r, generation_));
      continue;
    }
    if (writing.size() > kReadAhead) {
      writing.front().second.wait();
      writing.pop_front();
    }
    auto lease = staging_->acquire();
    const auto bytes = lease.bytes().first(static_cast<size_t>(r.count() * to.tile_bytes()));
    body(r, bytes);
    const Event written = to.write(r, generation_, bytes);
    lease.busy_until(written);
    writing.emplace_back(std::move(lease), written);
  }
  for (auto& [lease, written] : writing) written.wait();
}

}  // namespace spillway::parallel

#include "parallel/layout/layout.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace spillway::parallel {
namespace {

void add_segment(Group& group, const nn::Parameter& p, bool decay_all) {
  const i64 begin = round_up(group.elems, group.matrices ? kTileElems : kSegmentAlignElems);
  group.segments.push_back({p.id, begin, p.stored_elems(), decay_all || p.shape.rank() >= 2, group.matrices ? p.shape[0] : 0});
  group.elems = begin + p.stored_elems();
}

void cut_into_buckets(Layout& layout, Group& group, i64 max_elems) {
  group.elems = round_up(group.elems, kTileElems);
  if (group.frozen) return;
  const auto add = [&](i64 at, i64 elems) {
    const auto id = static_cast<u16>(layout.buckets.size());
    layout.buckets.push_back({id, group.id, at, ceil_div(elems, kTileElems)});
    group.buckets.push_back(id);
  };
  for (const Segment& s : group.matrices ? group.segments : std::vector<Segment>()) add(s.begin, s.elems);
  for (i64 at = 0; !group.matrices && at < group.elems; at += max_elems) add(at, std::min(max_elems, group.elems - at));
}

}  // namespace

bool Layout::trains(u16 block) const {
  return std::ranges::any_of(blocks[block], [&](const GroupUse& g) { return !groups[g.group].frozen; });
}

const Segment& Group::matrix_of(const Bucket& bucket) const {
  return *std::ranges::find_if(segments, [&](const Segment& s) { return s.begin == bucket.begin; });
}

const Segment& Layout::segment(u32 parameter) const {
  const auto& [group, index] = parameter_segment.at(parameter);
  return groups[group].segments[index];
}

i64 Layout::elems() const {
  i64 n = 0;
  for (const Group& g : groups) n += g.elems;
  return n;
}

i64 Layout::trained_elems() const {
  i64 n = 0;
  for (const Bucket& b : buckets) n += b.elems();
  return n;
}

Layout make_layout(const nn::Sequential& model, const LayoutOptions& options) {
  require(options.max_bucket_elems > 0 && options.max_bucket_elems % kTileElems == 0, "[layout] a bucket holds whole tiles");
  std::vector<std::vector<u16>> users(model.parameters.size());
  for (size_t b = 0; b < model.blocks.size(); ++b) {
    for (const nn::ParameterUse& u : model.blocks[b]->parameters()) {
      require(u.use == users[u.parameter->id].size(), "[layout] uses of a shared parameter must be numbered in block order");
      users[u.parameter->id].push_back(static_cast<u16>(b));
    }
  }
  Layout layout;
  layout.blocks.resize(model.blocks.size());
  layout.parameter_segment.resize(model.parameters.size());
  layout.first_trained_block = static_cast<u16>(model.first_trained_block());
  const auto new_group = [&](size_t block) -> Group& {
    Group& g = layout.groups.emplace_back();
    g.id = static_cast<u16>(layout.groups.size() - 1);
    g.owner_block = static_cast<u16>(block);
    return g;
  };
  for (size_t b = 0; b < model.blocks.size(); ++b) {
    layout.backward_reads_weights.push_back(model.blocks[b]->backward_reads_parameters());
    layout.weight_gradients_read_weights.push_back(model.blocks[b]->weight_gradients_read_parameters());
    std::array<int, 4> own{-1, -1, -1,
                           -1};  // the groups of what this block alone uses: trained, frozen, statistics, matrices; made on first need
    for (const nn::ParameterUse& u : model.blocks[b]->parameters()) {
      const nn::Parameter& p = *u.parameter;
      if (u.use > 0) {
        layout.blocks[b].push_back({layout.parameter_segment[p.id].first, u.use});
        continue;
      }
      const bool tied = users[p.id].size() > 1;
      const bool statistic = p.statistic && !p.frozen;
      const bool matrix = options.matrices && p.is_matrix() && !p.frozen;
      require(!matrix || !tied, "[layout] expected matrices of features to be of one block each");
      int& own_group = own[p.frozen ? 1 : statistic ? 2 : matrix ? 3 : 0];
      if (tied || own_group < 0) {
        Group& fresh = new_group(b);
        fresh.uses = users[p.id];
        fresh.frozen = p.frozen;
        fresh.statistics = statistic;
        fresh.matrices = matrix;
        layout.blocks[b].push_back({fresh.id, 0});
        if (!tied) own_group = fresh.id;
      }
      Group& group = tied ? layout.groups.back() : layout.groups[static_cast<size_t>(own_group)];
      layout.parameter_segment[p.id] = {group.id, group.segments.size()};
      add_segment(group, p, options.decay_all);
    }
  }
  for (Group& g : layout.groups) cut_into_buckets(layout, g, options.max_bucket_elems);
  layout.rank_of.assign(layout.blocks.size(), 0);
  for (const Group& g : layout.groups) layout.model_tiles.push_back(g.elems / kTileElems);
  return layout;
}

Layout restricted(Layout layout, std::vector<u16> rank_of, int rank) {
  layout.rank_of = std::move(rank_of);
  layout.rank = static_cast<u16>(rank);
  for (u16 b = 0; b < layout.blocks.size(); ++b) {
    if (!layout.here(b)) layout.blocks[b].clear();
  }
  for (Group& g : layout.groups) {
    if (!layout.owns(g)) g.buckets.clear();
    if (std::any_of(g.uses.begin(), g.uses.end(), [&](u16 block) { return layout.here(block); })) continue;
    g.elems = 0;
    g.segments.clear();
  }
  return layout;
}

}  // namespace spillway::parallel

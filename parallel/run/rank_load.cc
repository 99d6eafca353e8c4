// Fills a rank's weights and optimizer state before its first step.
#include <algorithm>

#include "optim/tile_values.h"
#include "parallel/run/rank.h"

namespace spillway::parallel {
namespace {

// The source of the values with which a rank is filled, and the format in which tiles store them.
struct Filling {
  const nn::Sequential& model;
  const optim::StateFormat format;
  const Rank::Source& source;
  const Rank::MomentSource& moments;
  const Rank::ByteSource& bytes;

  void fill(const Group& group, i64 tile, std::byte* weight, std::byte* state, std::vector<double>& values) const;
  bool fill_stored(const Group& group, i64 tile, std::byte* weight) const;
  void fill_values(const Group& group, i64 tile, std::byte* weight, std::byte* state, std::vector<double>& values) const;
  void fill_factors(const Group& group, i64 tile, std::byte* state) const;
};

// Copies a tile's weights as raw bytes. Used for weights without optimizer state. Returns
// false if the source does not have all of these weights in the right dtype.
bool Filling::fill_stored(const Group& group, i64 tile, std::byte* weight) const {
  const i64 from = tile * kTileElems, width = size_of(format.weight);
  bool stored = true;
  std::fill_n(weight, format.weight_tile_bytes(), std::byte());
  for_segments(group, from, from + kTileElems, [&](i64 begin, i64 end, const Segment* s) {
    if (!s || !stored || !model.parameters[s->parameter]->is_plain()) return;
    stored = bytes(*model.parameters[s->parameter], begin - s->begin, format.weight,
                   {weight + (begin - from) * width, static_cast<size_t>((end - begin) * width)});
  });
  return stored;
}

// Fills one tile. `values` is a scratch buffer of the calling thread that is used for one tile after the other.
void Filling::fill(const Group& group, i64 tile, std::byte* weight, std::byte* state, std::vector<double>& values) const {
  if (state || !bytes || !fill_stored(group, tile, weight)) fill_values(group, tile, weight, state, values);
  const i64 from = tile * kTileElems, width = size_of(format.weight);
  for_segments(group, from, from + kTileElems, [&](i64 begin, i64 end, const Segment* s) {
    if (!s || model.parameters[s->parameter]->is_plain()) return;
    nn::quantized_values(*model.parameters[s->parameter], source, (begin - s->begin) * width,
                         {weight + (begin - from) * width, static_cast<size_t>((end - begin) * width)});
  });
}

// Fills one tile from values in fp64. If nothing is trained, there is no state to fill, and the values are only converted to the weights'
// dtype.
void Filling::fill_values(const Group& group, i64 tile, std::byte* weight, std::byte* state, std::vector<double>& values) const {
  values.resize(optim::kStateParts * kTileElems);
  const auto part = [&](optim::StatePart which) { return std::span(values).subspan(static_cast<size_t>(which) * kTileElems, kTileElems); };
  std::ranges::fill(part(optim::StatePart::master), 0);
  std::ranges::fill(part(optim::StatePart::average), 0);
  for (int k = 0; moments && k < state_arrays(format.rule); ++k) std::ranges::fill(part(optim::array_part(k)), 0);
  const i64 from = tile * kTileElems;
  for_segments(group, from, from + kTileElems, [&](i64 begin, i64 end, const Segment* s) {
    if (!s) return;
    const nn::Parameter& p = *model.parameters[s->parameter];
    if (!p.is_plain()) return;
    const auto piece = [&](optim::StatePart which) {
      return part(which).subspan(static_cast<size_t>(begin - from), static_cast<size_t>(end - begin));
    };
    source(p, begin - s->begin, piece(optim::StatePart::master));
    for (int k = 0; moments && k < state_arrays(format.rule); ++k)
      moments(p, optim::array_part(k), begin - s->begin, piece(optim::array_part(k)));
    if (format.average && moments)
      moments(p, optim::StatePart::average, begin - s->begin, piece(optim::StatePart::average));
    else
      std::ranges::copy(piece(optim::StatePart::master), piece(optim::StatePart::average).begin());
  });
  std::vector<std::byte> unused(state ? 0 : static_cast<size_t>(format.state_tile_bytes()));
  const optim::TileValues<double> all{part(optim::StatePart::master), part(optim::StatePart::first), part(optim::StatePart::second),
                                      part(optim::StatePart::third), part(optim::StatePart::average)};
  optim::write_tile(format, all, weight, state ? state : unused.data());
  if (format.factors > 0 && state && moments) fill_factors(group, tile, state);
}

// Fills the row and column factors of Adafactor that this tile holds. The whole tile belongs to one parameter.
void Filling::fill_factors(const Group& group, i64 tile, std::byte* state) const {
  const i64 from = tile * kTileElems;
  for_segments(group, from, from + 1, [&](i64, i64, const Segment* s) {
    const i64 rows = s->matrices.row_factors(), all = s->matrices.factors(), here = (from - s->begin) / kTileElems * format.factors;
    std::vector<double> values(static_cast<size_t>(format.factors), 0);
    const auto take = [&](optim::StatePart part, i64 first, i64 last) {
      const i64 begin = std::max(first, here), end = std::min(last, here + format.factors);
      if (begin >= end) return;
      moments(*model.parameters[s->parameter], part, begin - first,
              std::span(values).subspan(static_cast<size_t>(begin - here), static_cast<size_t>(end - begin)));
    };
    take(optim::StatePart::rows, 0, rows);
    take(optim::StatePart::columns, rows, all);
    optim::write_factors(format, values, state);
  });
}

}  // namespace

void Rank::load(const Source& source, const MomentSource& moments, const ByteSource& bytes) {
  std::vector<std::vector<double>> values(static_cast<size_t>(threads()));
  for (const Group& g : plan_.layout.groups) {
    const optim::StateFormat format = plan_.scheduling.format_of(g);
    const Filling filling{model_, format, source, moments, bytes};
    work_.state.fill(g.id, [&](TileRange range, std::span<std::byte> weights, std::span<std::byte> state) {
      work_.streams().compute.run(range.count(), [&](i64 tile, int thread) {
        filling.fill(g, range.begin + tile, weights.data() + tile * format.weight_tile_bytes(),
                     state.empty() ? nullptr : state.data() + tile * format.state_tile_bytes(), values[static_cast<size_t>(thread)]);
      });
    });
  }
}

}  // namespace spillway::parallel

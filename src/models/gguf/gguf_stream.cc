#include "models/gguf/gguf_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "base/error.h"
#include "data/weights/transposed.h"
#include "device/stream.h"
#include "models/gguf/q8_0.h"

namespace spillway::models {
namespace {

constexpr i64 kPieceElems = 1 << 18;  // encoded by a thread at once; a multiple of the Q8_0 block
constexpr i64 kHeldElems = 1 << 24;   // limit of the elements held in memory, unless one piece is larger

// Encodes the values of a tensor in its type. The threads of the current stream encode pieces in parallel; the pieces are written in order.
class Encoder {
 public:
  /// Produces the values of a piece; called on any thread.
  using Values = std::function<void(i64 piece, std::vector<float>& values)>;

  Encoder(const GgufPart& part, GgufType type, const WeightSource& source, GgufWriter& writer)
      : part_(part), type_(type), source_(source), writer_(writer) {}

  /// Encodes and writes `pieces` pieces of at most `elems` elements each.
  void put(i64 pieces, i64 elems, const Values& values) {
    const Stream& stream = Stream::current();
    const i64 at_once = std::clamp<i64>(kHeldElems / elems, 1, 2 * stream.thread_count());
    slots_.resize(static_cast<size_t>(at_once));
    for (i64 first = 0; first < pieces; first += at_once) {
      const i64 count = std::min(at_once, pieces - first);
      stream.run(count, [&](i64 n, int) {
        Slot& slot = slots_[static_cast<size_t>(n)];
        values(first + n, slot.values);
        encode(slot.values, slot.bytes);
      });
      for (i64 n = 0; n < count; ++n) writer_.write(slots_[static_cast<size_t>(n)].bytes);
    }
  }

  /// Reads elements [begin, begin + out.size()) of the parameter, with offset and factor applied.
  void read(const nn::Parameter& p, i64 begin, std::span<float> out) const {
    if (part_.added == 0 && part_.factor == 1) return source_.read_as(p, begin, DType::f32, std::as_writable_bytes(out));
    std::vector<double> wide(out.size());
    source_.read(p, begin, wide);
    std::ranges::transform(wide, out.begin(), [&](double x) { return static_cast<float>((x + part_.added) * part_.factor); });
  }
  /// Reads rows [begin, begin + count) of a matrix's transpose.
  void read_transposed(const nn::Parameter& p, i64 begin, i64 count, std::span<float> out) const {
    const auto values = [&](i64 from, std::span<double> wide) { source_.read(p, from, wide); };
    data::read_transposed(p.shape[0], p.shape[1], values, begin, count, out);
  }

 private:
  struct Slot {
    std::vector<float> values;
    std::vector<std::byte> bytes;
  };

  void encode(std::span<const float> values, std::vector<std::byte>& bytes) const {
    bytes.resize(static_cast<size_t>(gguf_bytes(type_, std::ssize(values))));
    bool fits = true;
    if (type_ == GgufType::q8_0) {
      fits = encode_q8_0(values, bytes);
    } else if (type_ == GgufType::f32) {
      std::memcpy(bytes.data(), values.data(), bytes.size());
    } else {
      for (size_t i = 0; i < values.size(); ++i) {
        const u16 half = type_ == GgufType::bf16 ? narrow<BFloat16>(values[i]).bits : narrow<Float16>(values[i]).bits;
        if (type_ == GgufType::f16) fits = fits && ((half & 0x7fff) != 0x7c00 || std::isinf(values[i]));
        std::memcpy(bytes.data() + i * sizeof half, &half, sizeof half);
      }
    }
    if (!fits) {
      throw Error(ErrorCode::data,
                  fmt::format("[export] {}: expected numbers that {} holds, got larger ones, or none: give --dtype bf16 or "
                              "fp32",
                              part_.parts.front()->name, to_string(type_)));
    }
  }

  const GgufPart& part_;
  const GgufType type_;
  const WeightSource& source_;
  GgufWriter& writer_;
  std::vector<Slot> slots_;
};

void put_range(const nn::Parameter& p, Encoder& encoder) {
  encoder.put(ceil_div(p.elems(), kPieceElems), kPieceElems, [&](i64 piece, std::vector<float>& values) {
    const i64 begin = piece * kPieceElems;
    values.resize(static_cast<size_t>(std::min(kPieceElems, p.elems() - begin)));
    encoder.read(p, begin, values);
  });
}

// Returns the source row of output row i: output element 2j of a head is its element j, and 2j + 1 its element head_dim / 2 + j.
i64 interleaved(i64 i, i64 head_dim) { return i / head_dim * head_dim + i % 2 * (head_dim / 2) + i % head_dim / 2; }

// Writes a parameter with interleaved rows. A one-dimensional parameter is a single piece.
void put_interleaved(const nn::Parameter& p, i64 head_dim, Encoder& encoder) {
  const i64 rows = p.shape[0], columns = p.elems() / rows;
  const i64 rows_at_once = columns == 1 ? rows : std::max<i64>(1, kPieceElems / columns);
  encoder.put(ceil_div(rows, rows_at_once), rows_at_once * columns, [&](i64 piece, std::vector<float>& values) {
    const i64 first = piece * rows_at_once, count = std::min(rows_at_once, rows - first);
    values.resize(static_cast<size_t>(count * columns));
    for (i64 row = 0; row < count; ++row) {
      const i64 from = interleaved(first + row, head_dim) * columns;
      encoder.read(p, from, std::span(values).subspan(static_cast<size_t>(row * columns), static_cast<size_t>(columns)));
    }
  });
}

void put_transposed(const nn::Parameter& p, Encoder& encoder) {
  const i64 rows = p.shape[0], columns = p.shape[1], band = data::transposed_band(rows);
  encoder.put(ceil_div(columns, band), band * rows, [&](i64 piece, std::vector<float>& values) {
    const i64 first = piece * band, count = std::min(band, columns - first);
    values.resize(static_cast<size_t>(count * rows));
    encoder.read_transposed(p, first, count, values);
  });
}

}  // namespace

void write_gguf_tensor(const GgufPart& part, GgufType type, i64 head_dim, const WeightSource& source, GgufWriter& writer) {
  Encoder encoder(part, type, source, writer);
  for (const nn::Parameter* p : part.parts) {
    switch (part.order) {
      case GgufPart::Order::as_it_is:
        put_range(*p, encoder);
        break;
      case GgufPart::Order::interleaved:
        put_interleaved(*p, head_dim, encoder);
        break;
      case GgufPart::Order::transposed:
        put_transposed(*p, encoder);
        break;
    }
  }
}

}  // namespace spillway::models

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

constexpr i64 kPieceElems = 1 << 18;  // the number of elements that a thread encodes at once; a multiple of the Q8_0 block
constexpr i64 kHeldElems = 1 << 24;   // the most elements that are held in memory at once, unless one piece is larger

// Some consecutive elements of a tensor. `bytes` are written to the file. `values` holds the
// numbers before they are encoded; it is unused if the source delivers the encoded bytes.
struct Piece {
  std::vector<float> values;
  std::vector<std::byte> bytes;
};

// Encodes a tensor of the file in its GGUF type. The threads of the current stream encode and write pieces of the tensor in parallel.
class Encoder {
 public:
  /// A function that fills piece number `number` of a parameter. The piece's `values` or `bytes` already have their final size. It may be
  /// called on any thread.
  using Fill = std::function<void(i64 number, Piece& piece)>;

  Encoder(const GgufPart& part, GgufType type, const WeightSource& source, GgufWriter& writer, size_t tensor)
      : part_(part), type_(type), source_(source), writer_(writer), tensor_(tensor) {}

  /// Writes the next parameter of the tensor in pieces of `piece_elems` elements; the last piece may be shorter.
  void put(const nn::Parameter& p, i64 piece_elems, const Fill& fill) {
    const Stream& stream = Stream::current();
    const i64 pieces = ceil_div(p.elems(), piece_elems), threads = stream.thread_count();
    const i64 at_once = kHeldElems / piece_elems >= threads ? pieces : std::max<i64>(1, kHeldElems / piece_elems);
    std::vector<Piece> of_thread(static_cast<size_t>(threads));
    for (i64 first = 0; first < pieces; first += at_once) {
      stream.run(std::min(at_once, pieces - first), [&](i64 n, int thread) {
        Piece& piece = of_thread[static_cast<size_t>(thread)];
        const i64 begin = (first + n) * piece_elems, elems = std::min(piece_elems, p.elems() - begin);
        is_straight(p) ? piece.bytes.resize(static_cast<size_t>(gguf_bytes(type_, elems)))
                       : piece.values.resize(static_cast<size_t>(elems));
        fill(first + n, piece);
        if (!is_straight(p)) encode(piece.values, piece.bytes);
        writer_.write(tensor_, gguf_bytes(type_, done_elems_ + begin), piece.bytes);
      });
    }
    done_elems_ += p.elems();
  }

  /// Reads `count` elements of the parameter from `begin` on. Writes them to the
  /// piece from the piece's element `at` on, with offset and factor applied.
  void read(const nn::Parameter& p, i64 begin, i64 count, Piece& piece, i64 at) const {
    if (is_straight(p)) {
      const i64 width = gguf_bytes(type_, 1);
      const auto out = std::span(piece.bytes).subspan(static_cast<size_t>(at * width), static_cast<size_t>(count * width));
      return source_.read_as(p, begin, stored_as(), out);
    }
    const auto out = std::span(piece.values).subspan(static_cast<size_t>(at), static_cast<size_t>(count));
    if (is_plain()) return source_.read_as(p, begin, DType::f32, std::as_writable_bytes(out));
    std::vector<double> wide(out.size());
    source_.read(p, begin, wide);
    std::ranges::transform(wide, out.begin(), [&](double x) { return static_cast<float>((x + part_.added) * part_.factor); });
  }
  /// Reads rows [begin, begin + count) of the transpose of the matrix `p`.
  void read_transposed(const nn::Parameter& p, i64 begin, i64 count, std::span<float> out) const {
    const auto values = [&](i64 from, std::span<double> wide) { source_.read(p, from, wide); };
    data::read_transposed(p.shape[0], p.shape[1], values, begin, count, out);
  }

 private:
  bool is_plain() const { return part_.added == 0 && part_.factor == 1; }
  DType stored_as() const { return type_ == GgufType::bf16 ? DType::bf16 : type_ == GgufType::f16 ? DType::f16 : DType::f32; }
  // Returns whether the source delivers the bytes for the file as they are, so that nothing needs to be encoded.
  // For f16 the source must also store f16: numbers too large for f16 have to be found before they are rounded.
  bool is_straight(const nn::Parameter& p) const {
    if (!is_plain() || type_ == GgufType::q8_0 || part_.order == GgufPart::Order::transposed) return false;
    return type_ != GgufType::f16 || source_.is_stored_as(p, DType::f16);
  }

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
      throw Error(
          ErrorCode::data,
          fmt::format("[export] {}: expected finite numbers in the range of {}, got larger ones or NaN: choose --dtype bf16 or fp32",
                      part_.parts.front()->name, to_string(type_)));
    }
  }

  const GgufPart& part_;
  const GgufType type_;
  const WeightSource& source_;
  GgufWriter& writer_;
  const size_t tensor_;
  i64 done_elems_ = 0;  // the number of elements of the parameters that are already written
};

void put_range(const nn::Parameter& p, Encoder& encoder) {
  encoder.put(p, kPieceElems, [&](i64 number, Piece& piece) {
    const i64 begin = number * kPieceElems;
    encoder.read(p, begin, std::min(kPieceElems, p.elems() - begin), piece, 0);
  });
}

// Returns the row of the parameter that becomes row i of the tensor: row 2j of a head is the head's row j, and row 2j + 1 its row head_dim
// / 2 + j.
i64 interleaved(i64 i, i64 head_dim) { return i / head_dim * head_dim + i % 2 * (head_dim / 2) + i % head_dim / 2; }

// Writes a parameter with interleaved rows. A one-dimensional parameter (a bias) is written as a single piece.
void put_interleaved(const nn::Parameter& p, i64 head_dim, Encoder& encoder) {
  const i64 rows = p.shape[0], columns = p.elems() / rows;
  const i64 rows_at_once = columns == 1 ? rows : std::max<i64>(1, kPieceElems / columns);
  encoder.put(p, rows_at_once * columns, [&](i64 number, Piece& piece) {
    const i64 first = number * rows_at_once, count = std::min(rows_at_once, rows - first);
    for (i64 row = 0; row < count; ++row) encoder.read(p, interleaved(first + row, head_dim) * columns, columns, piece, row * columns);
  });
}

void put_transposed(const nn::Parameter& p, Encoder& encoder) {
  const i64 rows = p.shape[0], columns = p.shape[1], band = data::transposed_band(rows);
  encoder.put(p, band * rows, [&](i64 number, Piece& piece) {
    const i64 first = number * band;
    encoder.read_transposed(p, first, std::min(band, columns - first), piece.values);
  });
}

}  // namespace

void write_gguf_tensor(const GgufPart& part, GgufType type, i64 head_dim, const WeightSource& source, GgufWriter& writer, size_t tensor) {
  Encoder encoder(part, type, source, writer, tensor);
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

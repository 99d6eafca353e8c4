#include "models/gguf/gguf_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "base/error.h"
#include "data/weights/transposed.h"
#include "models/gguf/q8_0.h"

namespace spillway::models {
namespace {

constexpr i64 kPiece = 4096;  // elements held at once; whole blocks of Q8_0

// Turns values into the type's bytes.
class Encoder {
 public:
  Encoder(const GgufPart& part, GgufType type, GgufWriter& writer) : part_(part), type_(type), writer_(writer) {}

  void put(std::span<const float> values) {
    for (; !values.empty(); values = values.subspan(std::min<size_t>(values.size(), kPiece)))
      put_piece(values.first(std::min<size_t>(values.size(), kPiece)));
  }
  void put(std::span<const double> values) {
    values_.resize(values.size());
    std::ranges::transform(values, values_.begin(), [&](double x) { return static_cast<float>((x + part_.added) * part_.factor); });
    put(std::span<const float>(values_));
  }

 private:
  void put_piece(std::span<const float> values) {
    bytes_.resize(static_cast<size_t>(gguf_bytes(type_, static_cast<i64>(values.size()))));
    bool fits = true;
    if (type_ == GgufType::q8_0) {
      fits = encode_q8_0(values, bytes_);
    } else if (type_ == GgufType::f32) {
      std::memcpy(bytes_.data(), values.data(), bytes_.size());
    } else {
      for (size_t i = 0; i < values.size(); ++i) {
        const u16 half = type_ == GgufType::bf16 ? narrow<BFloat16>(values[i]).bits : narrow<Float16>(values[i]).bits;
        if (type_ == GgufType::f16) fits = fits && ((half & 0x7fff) != 0x7c00 || std::isinf(values[i]));
        std::memcpy(bytes_.data() + i * sizeof half, &half, sizeof half);
      }
    }
    if (!fits) {
      throw Error(ErrorCode::data,
                  fmt::format("[export] {}: expected numbers that {} holds, got larger ones, or none: give --dtype bf16 or "
                              "fp32",
                              part_.parts.front()->name, to_string(type_)));
    }
    writer_.write(bytes_);
  }

  const GgufPart& part_;
  GgufType type_;
  GgufWriter& writer_;
  std::vector<float> values_;
  std::vector<std::byte> bytes_;
};

void put_range(const nn::Parameter& p, i64 begin, i64 end, const WeightSource& source, Encoder& encoder) {
  std::vector<double> piece;
  for (i64 at = begin; at < end; at += kPiece) {
    piece.resize(static_cast<size_t>(std::min(kPiece, end - at)));
    source.read(p, at, piece);
    encoder.put(std::span<const double>(piece));
  }
}

// Element 2j of a head is its element j, and 2j + 1 its element head_dim / 2 + j.
i64 interleaved(i64 i, i64 head_dim) { return i / head_dim * head_dim + i % 2 * (head_dim / 2) + i % head_dim / 2; }

void put_interleaved(const nn::Parameter& p, i64 head_dim, const WeightSource& source, Encoder& encoder) {
  const i64 rows = p.shape[0], columns = p.elems() / rows;
  if (p.shape.rank() > 1) {
    for (i64 row = 0; row < rows; ++row) {
      const i64 from = interleaved(row, head_dim) * columns;
      put_range(p, from, from + columns, source, encoder);
    }
    return;
  }
  std::vector<double> head(static_cast<size_t>(head_dim)), turned(head.size());
  for (i64 at = 0; at < rows; at += head_dim) {
    source.read(p, at, head);
    for (i64 i = 0; i < head_dim; ++i) turned[static_cast<size_t>(i)] = head[static_cast<size_t>(interleaved(i, head_dim))];
    encoder.put(std::span<const double>(turned));
  }
}

void put_transposed(const nn::Parameter& p, const WeightSource& source, Encoder& encoder) {
  const i64 rows = p.shape[0], columns = p.shape[1], band = data::transposed_band(rows);
  std::vector<float> values;
  const auto read = [&](i64 begin, std::span<double> out) { source.read(p, begin, out); };
  for (i64 at = 0; at < columns; at += band) {
    const i64 count = std::min(band, columns - at);
    values.resize(static_cast<size_t>(count * rows));
    data::read_transposed(rows, columns, read, at, count, values);
    encoder.put(std::span<const float>(values));
  }
}

}  // namespace

void write_gguf_tensor(const GgufPart& part, GgufType type, i64 head_dim, const WeightSource& source, GgufWriter& writer) {
  Encoder encoder(part, type, writer);
  for (const nn::Parameter* p : part.parts) {
    switch (part.order) {
      case GgufPart::Order::as_it_is:
        put_range(*p, 0, p->elems(), source, encoder);
        break;
      case GgufPart::Order::interleaved:
        put_interleaved(*p, head_dim, source, encoder);
        break;
      case GgufPart::Order::transposed:
        put_transposed(*p, source, encoder);
        break;
    }
  }
}

}  // namespace spillway::models

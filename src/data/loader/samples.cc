#include "data/loader/samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "data/loader/image_source.h"
#include "data/tokens/token_source.h"

namespace spillway::data {
namespace {

std::span<i32> row_of(const Tensor& x_BT, i64 row) {
  const auto T = static_cast<size_t>(x_BT.size(1));
  return x_BT.span<i32>().subspan(static_cast<size_t>(row) * T, T);
}

void count_up(std::span<i32> positions_T) {
  i32 at = 0;
  for (i32& position : positions_T) position = at++;
}

class TokenWindows final : public TextRows {
 public:
  TokenWindows(const TokenSource& source, i64 T) : source_(source), T_(T) {}
  i64 rows() const override { return std::max<i64>(source_.tokens() - 1, 0) / T_; }
  i64 tokens() const override { return source_.tokens(); }
  bool packed() const override { return false; }
  std::string why_none() const override {
    return source_.tokens() > 0 ? "" : fmt::format("expected tokens in {}, got an empty file", source_.name());
  }

  RowTokens read(i64 row, std::span<i32> tokens_T, std::span<i32> targets_T, std::span<i32> positions_T) const override {
    source_.read(row * T_, tokens_T);
    std::copy(tokens_T.begin() + 1, tokens_T.end(), targets_T.begin());
    source_.read(row * T_ + T_, targets_T.last(1));
    count_up(positions_T);
    return {T_, T_};
  }

 private:
  const TokenSource& source_;
  const i64 T_;
};

class Texts final : public Samples {
 public:
  Texts(std::vector<std::unique_ptr<TextRows>> sources, i64 T)
      : sources_(std::move(sources)), T_(T), packed_(std::ranges::any_of(sources_, [](const auto& s) { return s->packed(); })) {}

  std::vector<i64> counts() const override {
    std::vector<i64> counts;
    for (const auto& source : sources_) counts.push_back(source->rows());
    return counts;
  }
  i64 targets() const override { return T_; }

  MicroBatch batch(i64 rows) const override {
    MicroBatch batch{.tokens_BT = empty({rows, T_}, DType::int32, "tokens"),
                     .targets_BT = empty({rows, T_}, DType::int32, "targets"),
                     .positions_BT = empty({rows, T_}, DType::int32, "positions")};
    batch.packed = packed_;
    return batch;
  }

  RowTokens read(size_t source, i64 sample, MicroBatch& batch, i64 row) const override {
    return sources_[source]->read(sample, row_of(batch.tokens_BT, row), row_of(batch.targets_BT, row), row_of(batch.positions_BT, row));
  }

  void leave_out(MicroBatch& batch, i64 row) const override {
    std::ranges::fill(row_of(batch.tokens_BT, row), 0);
    std::ranges::fill(row_of(batch.targets_BT, row), kPaddingTarget);
    count_up(row_of(batch.positions_BT, row));
  }

  std::string too_few(const std::string& kind) const override {
    i64 tokens = 0;
    for (const auto& source : sources_) {
      tokens += source->tokens();
      if (const std::string why = source->why_none(); source->rows() == 0 && !why.empty()) return why;
    }
    return fmt::format(
        "the data has {} tokens in {} source(s), but one {} window of --sequence-length {} needs {} tokens in one source: give more --data "
        "or a shorter --sequence-length",
        tokens, sources_.size(), kind, T_, T_ + 1);
  }

 private:
  const std::vector<std::unique_ptr<TextRows>> sources_;
  const i64 T_;
  const bool packed_;
};

std::array<float, 256> pixel_values() {
  std::array<float, 256> values{};
  for (size_t p = 0; p < values.size(); ++p) values[p] = (static_cast<float>(p) / 255.0f - 0.5f) / 0.5f;
  return values;
}

class Images final : public Samples {
 public:
  Images(const std::vector<std::unique_ptr<ImageSource>>& sources, DType dtype, const std::optional<Augmentation>& augment)
      : sources_(sources), dtype_(dtype), augment_(augment) {
    require(!sources.empty(), "[data] expected sources of images, got none");
  }

  std::vector<i64> counts() const override {
    std::vector<i64> counts;
    for (const auto& source : sources_) counts.push_back(source->images());
    return counts;
  }
  i64 targets() const override { return 1; }

  MicroBatch batch(i64 rows) const override {
    const Shape& image = shape_CHW();
    MicroBatch batch;
    batch.images_NCHW = empty({rows, image[0], image[1], image[2]}, dtype_, "images");
    batch.targets_BT = empty({rows}, DType::int32, "targets");
    return batch;
  }

  RowTokens read(size_t source, i64 image, MicroBatch& batch, i64 row) const override {
    std::vector<u8> pixels(static_cast<size_t>(shape_CHW().elems()));
    batch.targets_BT.span<i32>()[static_cast<size_t>(row)] = sources_[source]->read(image, pixels);
    if (augment_) {
      const std::vector<u8> whole = pixels;
      crop_and_flip(whole, shape_CHW(), augment_->border, philox(augment_->key, 0, static_cast<u64>(batch.first_sample + row)), pixels);
    }
    put(pixels, batch, row);
    return {1, 1};
  }

  void leave_out(MicroBatch& batch, i64 row) const override {
    batch.targets_BT.span<i32>()[static_cast<size_t>(row)] = kIgnoredTarget;
    put(std::vector<u8>(static_cast<size_t>(shape_CHW().elems())), batch, row);
  }

  std::string too_few(const std::string& kind) const override {
    return fmt::format("the data has no {} image in {} source(s): give more --data or a smaller --validation-fraction", kind,
                       sources_.size());
  }

 private:
  const Shape& shape_CHW() const { return sources_.front()->format().shape_CHW; }
  void put(const std::vector<u8>& pixels, MicroBatch& batch, i64 row) const {
    switch (dtype_) {
      case DType::f64:
        return put<double>(pixels, batch, row);
      case DType::bf16:
        return put<BFloat16>(pixels, batch, row);
      case DType::f16:
        return put<Float16>(pixels, batch, row);
      default:
        return put<float>(pixels, batch, row);
    }
  }
  template <class T>
  static void put(const std::vector<u8>& pixels, MicroBatch& batch, i64 row) {
    static const std::array<float, 256> kValues = pixel_values();
    const std::span<T> all = batch.images_NCHW.span<T>();
    for (size_t i = 0; i < pixels.size(); ++i)
      all[static_cast<size_t>(row) * pixels.size() + i] = narrow<T>(static_cast<Wide<T>>(kValues[pixels[i]]));
  }

  const std::vector<std::unique_ptr<ImageSource>>& sources_;
  const DType dtype_;
  const std::optional<Augmentation> augment_;
};

}  // namespace

std::unique_ptr<Samples> rows_of(std::vector<std::unique_ptr<TextRows>> sources, i64 sequence_length) {
  return std::make_unique<Texts>(std::move(sources), sequence_length);
}

std::unique_ptr<TextRows> windows_of(const TokenSource& source, i64 sequence_length) {
  return std::make_unique<TokenWindows>(source, sequence_length);
}

std::unique_ptr<Samples> windows_of(const std::vector<std::unique_ptr<TokenSource>>& sources, i64 sequence_length) {
  std::vector<std::unique_ptr<TextRows>> rows;
  for (const auto& source : sources) rows.push_back(windows_of(*source, sequence_length));
  return rows_of(std::move(rows), sequence_length);
}

std::unique_ptr<Samples> images_of(const std::vector<std::unique_ptr<ImageSource>>& sources, DType dtype,
                                   const std::optional<Augmentation>& augment) {
  return std::make_unique<Images>(sources, dtype, augment);
}

}  // namespace spillway::data

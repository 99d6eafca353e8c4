// What a loader deals out: numbered samples of one kind, windows of token sources or images of image sources. Thread-safe.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/augment.h"
#include "tensor/batch.h"

namespace spillway::data {

class TokenSource;
class ImageSource;

/// What a row holds.
struct RowTokens {
  i64 tokens = 0;   // positions with a token of the data, not padding; of an image 1
  i64 counted = 0;  // targets that contribute to the loss
};

class Samples {
 public:
  virtual ~Samples() = default;

  /// Of each source.
  virtual std::vector<i64> counts() const = 0;
  /// Of one sample, at most.
  virtual i64 targets() const = 0;
  /// Room for so many, from the stream in force.
  virtual MicroBatch batch(i64 rows) const = 0;
  /// One of a source's into a row of a batch that lies in host memory, whose number over the run is first_sample + row.
  virtual RowTokens read(size_t source, i64 sample, MicroBatch& batch, i64 row) const = 0;
  /// A row without a sample, whose targets are ignored; of text they are kPaddingTarget.
  virtual void leave_out(MicroBatch& batch, i64 row) const = 0;
  /// For the error that there is not one: what there is, what one needs, and the cure. `kind`: "training".
  virtual std::string too_few(const std::string& kind) const = 0;
};

/// Text cut into rows of T tokens. Thread-safe.
class TextRows {
 public:
  virtual ~TextRows() = default;
  virtual i64 rows() const = 0;
  /// All of it, for messages.
  virtual i64 tokens() const = 0;
  /// Whether positions begin anew within rows.
  virtual bool packed() const = 0;
  /// Where there are no rows for another reason than too few tokens: that reason, and the cure; else "".
  virtual std::string why_none() const { return ""; }
  /// Fills T of each. Behind the last document of a row targets are kPaddingTarget.
  virtual RowTokens read(i64 row, std::span<i32> tokens_T, std::span<i32> targets_T, std::span<i32> positions_T) const = 0;
};
std::unique_ptr<Samples> rows_of(std::vector<std::unique_ptr<TextRows>> sources, i64 sequence_length);

/// The windows of one source.
std::unique_ptr<TextRows> windows_of(const TokenSource& source, i64 sequence_length);
/// Window w of a source is tokens [w·T, w·T + T), with targets shifted by one; what does not fill (T + 1 tokens) is dropped. The sources
/// must outlive them.
std::unique_ptr<Samples> windows_of(const std::vector<std::unique_ptr<TokenSource>>& sources, i64 sequence_length);
/// An image and its class. Pixels p become (p / 255 - 0.5) / 0.5 in fp32, as PyTorch's CIFAR-10 tutorial has them, rounded to `dtype`.
/// `augment`: they are changed before (augment.h), by the number of their row over the run.
std::unique_ptr<Samples> images_of(const std::vector<std::unique_ptr<ImageSource>>& sources, DType dtype,
                                   const std::optional<Augmentation>& augment = {});

}  // namespace spillway::data

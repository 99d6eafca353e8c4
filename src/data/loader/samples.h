// Samples is the interface between the loader and its data: numbered samples of one kind, either windows of token sources, images of image
// sources, or a program's own samples (own_samples.h). Thread-safe.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/loader/augment.h"
#include "tensor/batch.h"

namespace spillway::data {

class TokenSource;
class ImageSource;

/// The numbers of tokens and targets in one row of a batch.
struct RowTokens {
  i64 tokens = 0;   // the number of positions that hold data, not padding; 1 for an image
  i64 counted = 0;  // the number of targets that contribute to the loss
};

class Samples {
 public:
  virtual ~Samples() = default;

  /// Returns the number of samples of each source.
  virtual std::vector<i64> counts() const = 0;
  /// Returns the largest number of targets that one sample can have: the sequence length for text, 1 for an image.
  virtual i64 targets() const = 0;
  /// Returns true if samples are best read one after the other, and counts() is only an upper bound (TensorSource::is_stream).
  virtual bool is_stream() const { return false; }
  /// Allocates a batch of `rows` rows from the current stream.
  virtual MicroBatch batch(i64 rows) const = 0;
  /// Reads sample `sample` of source `source` into row `row` of `batch`, which lies
  /// in host memory. The row's index in the whole run is batch.first_sample + row.
  virtual RowTokens read(size_t source, i64 sample, MicroBatch& batch, i64 row) const = 0;
  /// Fills a row for which there is no sample: all targets of the row are ignored. For text these targets are kPaddingTarget.
  virtual void leave_out(MicroBatch& batch, i64 row) const = 0;
  /// Returns the text of the error that there is not a single sample. The text says how much
  /// data there is, what one sample needs, and the remedy. `kind` is for example "training".
  virtual std::string too_few(const std::string& kind) const = 0;
};

/// The rows of T tokens into which one text source is cut. Thread-safe.
class TextRows {
 public:
  virtual ~TextRows() = default;
  virtual i64 rows() const = 0;
  /// Returns the number of tokens of the whole source. Error messages state it.
  virtual i64 tokens() const = 0;
  /// Returns true if a row may hold several documents, in which case the positions restart within the row.
  virtual bool packed() const = 0;
  /// Returns, for an error message, why there are no rows although there are enough tokens, and the remedy; "" if there is no such
  /// reason.
  virtual std::string why_none() const { return ""; }
  /// Reads one row: fills its T tokens, targets and positions. Targets after the row's last document are kPaddingTarget.
  virtual RowTokens read(i64 row, std::span<i32> tokens_T, std::span<i32> targets_T, std::span<i32> positions_T) const = 0;
};
std::unique_ptr<Samples> rows_of(std::vector<std::unique_ptr<TextRows>> sources, i64 sequence_length);

/// Returns the windows of one source.
std::unique_ptr<TextRows> windows_of(const TokenSource& source, i64 sequence_length);
/// Returns the windows of several sources. Window w of a source is tokens [w·T, w·T + T), and its targets are the tokens one position
/// later. Tokens at the end that are too few for a window (fewer than T + 1) are dropped. The sources must outlive the result.
std::unique_ptr<Samples> windows_of(const std::vector<std::unique_ptr<TokenSource>>& sources, i64 sequence_length);
/// Returns samples each of which is an image and its class. A pixel p becomes (p / 255 - 0.5) / 0.5 in
/// fp32, as in PyTorch's CIFAR-10 tutorial, rounded to `dtype`. If `augment` is given, images are
/// augmented first (augment.h). The random numbers for an image depend on the index of its row in the run.
std::unique_ptr<Samples> images_of(const std::vector<std::unique_ptr<ImageSource>>& sources, DType dtype,
                                   const std::optional<Augmentation>& augment = {});

}  // namespace spillway::data

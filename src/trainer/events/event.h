// Makes the records of TensorBoard's event files (https://github.com/tensorflow/tensorboard, tensorboard/compat/proto/event.proto
// and summary.proto). A record is a message in protobuf's wire format (https://protobuf.dev/programming-guides/encoding), framed
// as a TFRecord: its length, the masked CRC-32C of the length, its bytes, the masked CRC-32C of the bytes. An event file is
// first_event() followed by any number of other events. All functions are pure.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "base/types.h"
#include "trainer/events/histogram.h"
#include "trainer/events/scalars.h"

namespace spillway::trainer {

/// Returns `bytes` framed as one TFRecord.
std::string framed(std::string_view bytes);

/// Returns the record with which every event file begins. `wall_time` is in seconds since 1970, in this and the following functions.
std::string first_event(double wall_time);
/// Returns the record which says that the run starts, or resumes, at `step`.
/// TensorBoard ignores what older event files contain for this and later steps.
std::string start_event(double wall_time, i64 step);
/// Returns the record of a step's scalars. They are stored as float32, which is TensorBoard's type for scalars.
std::string scalars_event(double wall_time, i64 step, std::span<const Scalar> scalars);
/// Returns a record for TensorBoard's page of texts, which shows Markdown.
/// `text` is shown verbatim. Bytes that are not valid UTF-8 become U+FFFD.
std::string text_event(double wall_time, i64 step, std::string_view tag, std::string_view text);
/// Returns a record for TensorBoard's pages of histograms and distributions. The histogram's numbers are stored as doubles.
std::string histogram_event(double wall_time, i64 step, std::string_view tag, const Histogram& histogram);

}  // namespace spillway::trainer

#include "parallel/schedule/schedule_csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "base/error.h"
#include "data/files/file.h"
#include "parallel/schedule/schedule_check.h"

namespace spillway::parallel {
namespace {

constexpr std::string_view kOverlap = ")OVERLAP_F_B";
constexpr i64 kMostActionBytes = 20;  // length of the longest action in a file, with its comma

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const size_t begin = text.find_first_not_of(kBlank);
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

// Removes from the front of `text` everything up to and including `mark`, and returns
// that part without the mark. If there is no mark, takes the whole text.
std::string_view cut(std::string_view& text, char mark) {
  const size_t end = std::min(text.find(mark), text.size());
  const std::string_view piece = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return piece;
}

class Parser {
 public:
  Parser(std::string_view text, const std::string& name) : text_(text) { schedule_.name = name; }

  Schedule run() {
    // skips the UTF-8 byte order mark with which spreadsheet programs begin a file
    if (text_.starts_with("\xef\xbb\xbf")) text_.remove_prefix(3);
    text_ = text_.substr(0, text_.find_last_not_of(" \t\r\n") + 1);
    if (text_.empty())
      throw Error(ErrorCode::data, fmt::format("[schedule] {}: expected one row for each rank, got an empty file", schedule_.name));
    while (!text_.empty()) parse_row(cut(text_, '\n'));
    take_ranks();
    check_schedule(schedule_);
    return std::move(schedule_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorCode::data, fmt::format("{}: expected {}", at_cell(schedule_, schedule_.ranks() - 1, cell_), what));
  }

  void parse_row(std::string_view line) {
    schedule_.rows.emplace_back();
    if (schedule_.ranks() > kMostStages) refuse(fmt::format("at most {} rows", kMostStages));
    ScheduleRow& row = schedule_.rows.back();
    const i64 cells = std::ranges::count(line, ',') + 1;
    for (cell_ = 0; cell_ < cells; ++cell_) {
      parse_cell(trimmed(cut(line, ',')), row);
      if ((actions_ += 1) > kMostActions) refuse(fmt::format("at most {} cells in total", kMostActions));
    }
    cell_ = 0;
    if (std::ranges::all_of(row, [](const Action& a) { return a.kind == ActionKind::idle; })) {
      refuse("an action such as 0F0 in every row, got none");
    }
  }

  void parse_cell(std::string_view cell, ScheduleRow& row) {
    if (cell.empty() || cell.front() != '(') {
      row.push_back(cell.empty() ? Action{} : parse_action(cell, cell));
      return;
    }
    std::string_view pair = cell.substr(1);
    if (!pair.ends_with(kOverlap)) wrong_cell(cell);
    pair.remove_suffix(kOverlap.size());
    Action forward = parse_action(trimmed(cut(pair, ';')), cell);
    const Action backward = parse_action(trimmed(pair), cell);
    if (forward.kind != ActionKind::forward || backward.kind != ActionKind::backward) wrong_cell(cell);
    forward.overlaps_next = true;
    row.push_back(forward);
    row.push_back(backward);
    actions_ += 1;
  }

  [[noreturn]] void wrong_cell(std::string_view cell) const {
    refuse(
        fmt::format("an action such as 3F0 (stage, F B I or W, micro-batch) or (0F3;3B1)OVERLAP_F_B, got {}; leave out actions that send, "
                    "receive, gather or reduce",
                    data::in_quotes(cell)));
  }

  Action parse_action(std::string_view text, std::string_view cell) {
    Action action;
    action.stage = parse_number(text, "stage", cell);
    const size_t kind = text.empty() ? std::string_view::npos : std::string_view("FBIW").find(text.front());
    if (kind == std::string_view::npos) wrong_cell(cell);
    action.kind = static_cast<ActionKind>(kind + 1);
    text.remove_prefix(1);
    action.micro_batch = parse_number(text, "micro-batch", cell);
    if (!text.empty()) wrong_cell(cell);
    note(action);
    return action;
  }

  u16 parse_number(std::string_view& text, const char* what, std::string_view cell) const {
    u16 value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc::result_out_of_range) refuse(fmt::format("a {} below 65536, got {}", what, data::in_quotes(cell)));
    if (error != std::errc()) wrong_cell(cell);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    return value;
  }

  // Records which rank holds the action's stage: that of the first row that names the stage. check_schedule() refuses other such rows.
  void note(const Action& action) {
    schedule_.micro_batches = std::max<i32>(schedule_.micro_batches, action.micro_batch + 1);
    if (action.stage >= holders_.size()) holders_.resize(action.stage + size_t{1}, kNobody);
    if (holders_[action.stage] == kNobody) holders_[action.stage] = schedule_.ranks() - 1;
  }

  void take_ranks() {
    for (size_t stage = 0; stage < holders_.size(); ++stage) {
      if (holders_[stage] == kNobody) {
        throw Error(ErrorCode::data, fmt::format("[schedule] {}: expected every stage from 0 to {}, got no action of stage {} in any row",
                                                 schedule_.name, holders_.size() - 1, stage));
      }
      schedule_.rank_of.push_back(static_cast<u16>(holders_[stage]));
    }
  }

  static constexpr i32 kNobody = -1;
  std::string_view text_;
  Schedule schedule_;
  std::vector<i32> holders_;  // the rank that holds each stage
  i64 cell_ = 0, actions_ = 0;
};

}  // namespace

Schedule parse_schedule_csv(std::string_view text, const std::string& name) { return Parser(text, name).run(); }

Schedule read_schedule_csv(const std::filesystem::path& path) {
  const data::File file = data::File::open(path);
  if (file.size_bytes() > kMostActions * kMostActionBytes) {
    throw Error(ErrorCode::data, fmt::format("[schedule] {}: expected a table of at most {} actions, got a file of {} bytes", path.string(),
                                             kMostActions, file.size_bytes()));
  }
  return parse_schedule_csv(file.text(), path.string());
}

std::string to_csv(const Schedule& schedule) {
  std::string text;
  for (const ScheduleRow& row : schedule.rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      if (i > 0) text += ',';
      if (!row[i].overlaps_next) {
        text += to_string(row[i]);
      } else {
        text += '(' + to_string(row[i]) + ';' + to_string(row[i + 1]) + std::string(kOverlap);
        ++i;
      }
    }
    text += '\n';
  }
  return text;
}

}  // namespace spillway::parallel

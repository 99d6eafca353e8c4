// Tests schedules as CSV tables: writing and reading round-trips, and malicious or damaged tables are refused.
#include <gtest/gtest.h>

#include <fstream>

#include "parallel/schedule/schedule_generate.h"
#include "parallel/schedule/schedule_simulate.h"
#include "tests/parallel/schedule/support_schedules.h"
#include "tests/support/temporary_folder.h"

namespace spillway::parallel::schedule_csv_test {
namespace {

class ReferenceCsv : public testing::TestWithParam<ReferenceTable> {};

TEST_P(ReferenceCsv, ReadsAndWritesTheSameBytes) {
  const ReferenceTable& table = GetParam();
  const Schedule compact = read_schedule_csv(table.compact_path());
  EXPECT_EQ(to_csv(compact), whole_file(table.compact_path()));
  EXPECT_EQ(std::filesystem::exists(table.idle_path()), table.has_idle);
  if (!table.has_idle) return;
  const Schedule idle = read_schedule_csv(table.idle_path());
  EXPECT_EQ(to_csv(idle), whole_file(table.idle_path()));
  EXPECT_NE(idle.rows, compact.rows);
  EXPECT_EQ(without_idle(idle).rows, compact.rows);
  EXPECT_EQ(simulate_schedule(idle).makespan, table.makespan);
}

TEST_P(ReferenceCsv, OurIdleSlotsAreColumnsOfTime) {
  const Schedule compact = read_schedule_csv(GetParam().compact_path());
  const Schedule idle = with_idle(compact);
  EXPECT_EQ(without_idle(idle).rows, compact.rows);
  EXPECT_EQ(with_idle(idle).rows, idle.rows);
  EXPECT_EQ(parse_schedule_csv(to_csv(idle), "x").rows, idle.rows);
  const ScheduleTimes times = simulate_schedule(compact);
  for (size_t r = 0; r < idle.rows.size(); ++r) {
    const bool ends_in_pair = idle.rows[r].size() > 1 && idle.rows[r][idle.rows[r].size() - 2].overlaps_next;
    EXPECT_EQ(static_cast<double>(cell_of(idle.rows[r], idle.rows[r].size())), times.ranks[r].end - ends_in_pair);
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, ReferenceCsv, testing::ValuesIn(reference_tables()), tag_of);

// Compares idle slots with torch's ZB-V table, in which, as in Spillway's, no rank waits longer than it must.
TEST(ScheduleCsv, IdleSlotsOfZbVAreTorchs) {
  EXPECT_EQ(to_csv(with_idle(generate_schedule(ScheduleKind::zb_v, {2, 4, 2}))),
            whole_file(test::data("schedules/ZBVZeroBubble_r2_m4_s2.csv")));
}

TEST(ScheduleCsv, TakesWhatEditorsAndSpreadsheetsWrite) {
  const std::string plain = "0F0,,0B0\n,1F0,1B0\n";
  const Schedule expected = parse_schedule_csv(plain, "x");
  EXPECT_EQ(expected.rows[0].size(), 3u);
  for (const char* text : {"0F0,,0B0\n,1F0,1B0", "0F0,,0B0\r\n,1F0,1B0\r\n",
                           "\xef\xbb\xbf"
                           "0F0,,0B0\n,1F0,1B0\n\n \n",
                           " 0F0 , ,\t0B0\n,1F0, 1B0\n"}) {
    EXPECT_EQ(parse_schedule_csv(text, "x"), expected) << text;
  }
  const Schedule pair = parse_schedule_csv("0F0,( 0F1 ; 0B0 )OVERLAP_F_B,0B1", "x");
  EXPECT_EQ(to_csv(pair), "0F0,(0F1;0B0)OVERLAP_F_B,0B1\n");
}

struct Hostile {
  const char *text, *piece;
};

TEST(ScheduleCsv, RefusesHostileTablesNamingRowAndColumn) {
  const Hostile cases[] = {
      {"", "x.csv: expected one row for each rank"},
      {" \r\n\n", "got an empty file"},
      {"0F0,0B0\n\n1F0,1B0\n", "row 2, column 1: expected an action such as 0F0 in every row, got none"},
      {"0F0,0B0\n,,\n", "row 2, column 1: expected an action"},
      {"0F0,0Q0\n", "row 1, column 2: expected an action such as 3F0 (stage, F B I or W, micro-batch)"},
      {"0F0,0B0\n1F0,1B\n", "row 2, column 2: expected an action"},
      {"0F0,F0\n", "row 1, column 2"},
      {"0F0,-1B0\n", "row 1, column 2"},
      {"0F0,+0B0\n", "row 1, column 2"},
      {"0F0,0B0x\n", "got \"0B0x\""},
      {"0F0;0B0\n", "row 1, column 1"},
      {"\"0F0\",0B0\n", "row 1, column 1"},
      {"0F0,0B65536\n", "row 1, column 2: expected a micro-batch below 65536"},
      {"0F0,99999999999999999999B0\n", "row 1, column 2: expected a stage below 65536"},
      {"0F0,0SEND_F0,0B0\n", "leave out actions that send"},
      {"0F0,0UNSHARD,0B0\n", "row 1, column 2"},
      {"(0F0;0B0\n", "row 1, column 1"},
      {"(0F0;0B0)OVERLAP\n", "row 1, column 1"},
      {"(0F0)OVERLAP_F_B\n", "row 1, column 1"},
      {"(0F0;0B0;0F1)OVERLAP_F_B\n", "row 1, column 1"},
      {"0F0,0F1,(0B0;0F2)OVERLAP_F_B\n", "row 1, column 3"},
      {"(0F0;)OVERLAP_F_B\n", "row 1, column 1"},
      {"((0F0;0B0)OVERLAP_F_B;0B0)OVERLAP_F_B\n", "row 1, column 1"},
      {"0F0,1F0,1B0,0B0\n1F1,1B1\n", "row 2, column 1: expected stage 1 only in row 1"},
      {"0F0,0B0\n2F0,2B0\n", "expected every stage from 0 to 2, got no action of stage 1"},
      {"0F0,0B0,65535F0\n", "got no action of stage 1"},
      {"0F0,0B0,0F65535\n", "got no 0F1 in row 1"},
      {"\xff\xfe"
       "0F0\n",
       "row 1, column 1"},
      {"0F0,(0F1;0B0)OVERLAP_F_B,0B1,0B1", "row 1, column 4: expected every action at most once"},
  };
  for (const Hostile& hostile : cases) {
    const std::string message = data_error_of([&] { parse_schedule_csv(hostile.text, "x.csv"); });
    EXPECT_NE(message.find("[schedule] x.csv"), std::string::npos) << message;
    EXPECT_NE(message.find(hostile.piece), std::string::npos) << hostile.text << "\n" << message;
  }
}

// Shows that a short text that names the last stage and micro-batch does not make the parser reserve memory for their product.
TEST(ScheduleCsv, SizesAreCheckedBeforeTheyAreUsed) {
  std::string text;
  for (int stage = 0; stage < 3000; ++stage) text += std::to_string(stage) + "F65535,";
  EXPECT_NE(
      data_error_of([&] { parse_schedule_csv(text, "x.csv"); }).find("at most 16777216 actions, got 3000 stages and 65536 micro-batches"),
      std::string::npos);
  EXPECT_NE(data_error_of([&] { parse_schedule_csv(std::string(kMostActions + 5, ','), "x.csv"); }).find("at most 16777216 cells"),
            std::string::npos);
  std::string rows;
  for (int row = 0; row < 65540; ++row) rows += "0F0\n";
  EXPECT_NE(data_error_of([&] { parse_schedule_csv(rows, "x.csv"); }).find("row 65537, column 1: expected at most 65536 rows"),
            std::string::npos);
}

// Shows that a table with a byte changed, lost or doubled is read as a schedule or throws Error(data).
TEST(ScheduleCsv, AnyDamageIsAScheduleOrADataError) {
  const std::string whole = whole_file(test::data("schedules/DualPipeV_r2_m4_s2.compact.csv"));
  const std::string bytes = std::string("\0,;()\n\r FBIW09\xff", 16);
  for (size_t at = 0; at < whole.size(); ++at) {
    std::vector<std::string> damaged = {whole.substr(0, at), whole.substr(0, at) + whole.substr(at + 1),
                                        whole.substr(0, at) + whole.substr(at / 2)};
    for (const char byte : bytes) {
      damaged.push_back(whole);
      damaged.back()[at] = byte;
    }
    for (const std::string& text : damaged) {
      try {
        const Schedule schedule = parse_schedule_csv(text, "x.csv");
        EXPECT_EQ(parse_schedule_csv(to_csv(schedule), "x.csv").rows, schedule.rows);
      } catch (const Error& error) {
        ASSERT_EQ(error.code(), ErrorCode::data) << error.what();
      }
    }
  }
}

TEST(ScheduleCsv, FilesThatAreNoTables) {
  EXPECT_NE(data_error_of([] { read_schedule_csv("/no/such/table.csv"); }).find("/no/such/table.csv"), std::string::npos);
  EXPECT_NE(data_error_of([] { read_schedule_csv(test::data("schedules/index.json")); }).find("index.json, row 1, column 1"),
            std::string::npos);
  const test::TemporaryFolder folder;
  const std::filesystem::path large = folder / "large.csv";
  std::ofstream(large).close();
  std::filesystem::resize_file(large, std::uintmax_t{1} << 40);  // the file is sparse and takes no disk space
  EXPECT_NE(data_error_of([&] { read_schedule_csv(large); }).find("got a file of 1099511627776 bytes"), std::string::npos);
}

}  // namespace
}  // namespace spillway::parallel::schedule_csv_test

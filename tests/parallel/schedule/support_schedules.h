// Gives access to the reference tables of pipeline schedules in tests/data/schedules.
#pragma once
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "parallel/schedule/schedule_csv.h"
#include "tests/support/fixtures.h"

namespace spillway::parallel {

struct ReferenceTable {
  std::string tag, schedule;
  i64 ranks = 0, micro_batches = 0, chunks = 0, makespan = 0;
  std::vector<u16> rank_of;
  bool has_idle = false;
  friend void PrintTo(const ReferenceTable& table, std::ostream* out) { *out << table.tag; }
  std::filesystem::path compact_path() const { return test::data("schedules/" + tag + ".compact.csv"); }
  std::filesystem::path idle_path() const { return test::data("schedules/" + tag + ".csv"); }
};

inline std::vector<ReferenceTable> reference_tables() {
  std::ifstream in(test::data("schedules/index.json"));
  std::vector<ReferenceTable> tables;
  const auto index = nlohmann::json::parse(in);
  for (const auto& [tag, one] : index["cases"].items()) {
    tables.push_back({tag, one["schedule"], one["ranks"], one["microbatches"], one["stages_per_rank"], one["unit_time_makespan"],
                      one["stage_to_rank"].get<std::vector<u16>>(), one["has_idle_slots"]});
  }
  return tables;
}

inline std::string tag_of(const testing::TestParamInfo<ReferenceTable>& info) { return "T" + info.param.tag; }

inline std::string whole_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return (std::stringstream() << in.rdbuf()).str();
}

/// Returns the message of the Error(data) that `call` throws.
template <class Call>
std::string data_error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::data) << error.what();
    return error.what();
  }
  return "no error";
}

}  // namespace spillway::parallel

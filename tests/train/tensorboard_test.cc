#include "troika/train/tensorboard.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>

#include "support/temporary_folder.h"

namespace troika {
namespace {

namespace fs = std::filesystem;

// A reader of its own: bit by bit, without the writer's table, and with all field types of the format.
uint32_t slow_crc(const std::string& bytes) {
  uint32_t crc = ~0U;
  for (const char byte : bytes) {
    for (int bit = 0; bit < 8; ++bit) {
      const bool odd = ((crc ^ (static_cast<uint8_t>(byte) >> bit)) & 1) != 0;
      crc = odd ? (crc >> 1) ^ 0x82F63B78U : crc >> 1;
    }
  }
  return ~crc;
}

uint32_t slow_mask(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U; }

struct Reader {
  const std::string& text;
  size_t at = 0;
  bool done() const { return at >= text.size(); }
  template <typename T>
  T fixed() {
    T value{};
    EXPECT_LE(at + sizeof value, text.size());
    std::memcpy(&value, text.data() + at, sizeof value);
    at += sizeof value;
    return value;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = fixed<uint8_t>();
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
  }
  std::string bytes(size_t size) {
    EXPECT_LE(at + size, text.size());
    at += size;
    return text.substr(at - size, size);
  }
};

struct ReadEvent {
  double wall_time = 0;
  int64_t step = 0;
  std::string version;
  std::optional<uint64_t> session;
  std::map<std::string, float> values;
};

std::pair<std::string, float> read_value(const std::string& text) {
  std::pair<std::string, float> value;
  for (Reader in{text}; !in.done();) {
    const uint64_t key = in.varint();
    if (key == (1 << 3 | 2)) {
      value.first = in.bytes(in.varint());
    } else if (key == (2 << 3 | 5)) {
      value.second = in.fixed<float>();
    } else {
      ADD_FAILURE() << "key " << key;
      break;
    }
  }
  return value;
}

ReadEvent read_event(const std::string& text) {
  ReadEvent event;
  for (Reader in{text}; !in.done();) {
    const uint64_t key = in.varint();
    if (key == (1 << 3 | 1)) {
      event.wall_time = in.fixed<double>();
    } else if (key == (2 << 3 | 0)) {
      event.step = static_cast<int64_t>(in.varint());
    } else if (key == (3 << 3 | 2)) {
      event.version = in.bytes(in.varint());
    } else if (key == (5 << 3 | 2)) {
      const std::string summary = in.bytes(in.varint());
      for (Reader values{summary}; !values.done();) {
        EXPECT_EQ(values.varint(), 1 << 3 | 2);
        event.values.insert(read_value(values.bytes(values.varint())));
      }
    } else if (key == (7 << 3 | 2)) {
      const std::string session = in.bytes(in.varint());
      Reader status{session};
      EXPECT_EQ(status.varint(), 1 << 3 | 0);
      event.session = status.varint();
    } else {
      ADD_FAILURE() << "key " << key;
      break;
    }
  }
  return event;
}

std::vector<ReadEvent> read_events(const Path& path) {
  const std::string text = read_text(path);
  std::vector<ReadEvent> events;
  for (Reader in{text}; !in.done();) {
    const std::string length = in.bytes(8);
    EXPECT_EQ(in.fixed<uint32_t>(), slow_mask(slow_crc(length)));
    uint64_t size = 0;
    std::memcpy(&size, length.data(), 8);
    const std::string content = in.bytes(size);
    EXPECT_EQ(in.fixed<uint32_t>(), slow_mask(slow_crc(content)));
    events.push_back(read_event(content));
  }
  return events;
}

std::vector<int64_t> steps_of(const Path& path) {
  std::vector<int64_t> steps;
  for (const ReadEvent& event : read_events(path)) {
    if (!event.values.empty()) steps.push_back(event.step);
  }
  return steps;
}

TEST(TensorBoard, ChecksumsAreCastagnolis) {
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43U);
}

TEST(TensorBoard, WhatIsWrittenIsRead) {
  const TemporaryFolder folder;
  const int64_t far = int64_t{1} << 40;
  EventsFile file(folder.path(), 0);
  const std::vector<Scalar> scalars = {{"loss/train", 0.25}, {"learning_rate", 1e-3}, {"metrics/größe", -1}};
  file.add(1, scalars);
  file.add(300, std::vector<Scalar>{{"loss/train", std::nan("")}});
  file.add(far, std::vector<Scalar>{{"loss/train", 1}});
  const std::vector<ReadEvent> events = read_events(file.path());
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_EQ(events[0].step, 0);
  EXPECT_FALSE(events[0].session);
  EXPECT_EQ(events[1].step, 1);
  EXPECT_EQ(events[1].values, (std::map<std::string, float>{
                                  {"loss/train", 0.25F}, {"learning_rate", 1e-3F}, {"metrics/größe", -1}}));
  EXPECT_TRUE(std::isnan(events[2].values.at("loss/train")));
  EXPECT_EQ(events[3].step, far);
  for (const ReadEvent& event : events)
    EXPECT_NEAR(event.wall_time, static_cast<double>(::time(nullptr)), 600);
}

TEST(TensorBoard, NamesTellOrderAndOrigin) {
  const TemporaryFolder folder;
  const EventsFile first(folder.path(), 0), second(folder.path(), 3), third(folder.path(), 5);
  EXPECT_EQ(events_files(folder.path()),
            (std::vector<Path>{first.path(), second.path(), third.path()}));  // within one second too
  const std::string name = first.path().filename().string();
  EXPECT_EQ(name.find("events.out.tfevents."), 0u) << name;
  EXPECT_TRUE(is_events_file(name));
  EXPECT_FALSE(is_events_file("events.out.tfevents.1.host"));  // some other program's
  EXPECT_FALSE(is_events_file("model.troika"));
}

TEST(TensorBoard, AResumedRunForgetsWhatCameAfterItsCheckpoint) {
  const TemporaryFolder folder;
  EventsFile first(folder.path(), 0);
  for (int64_t step = 1; step <= 200; ++step) first.add(step, std::vector<Scalar>{{"loss/train", 1.0}});
  truncate_events(folder.path(), 150);
  EventsFile second(folder.path(), 150);
  second.add(151, std::vector<Scalar>{{"loss/train", 2.0}});
  EXPECT_EQ(steps_of(first.path()).size(), 150u);
  EXPECT_EQ(steps_of(first.path()).back(), 150);
  EXPECT_EQ(steps_of(second.path()), std::vector<int64_t>{151});
  const std::vector<ReadEvent> events = read_events(second.path());
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[1].session, 1u);  // START: viewers drop what they hold from here on
  EXPECT_EQ(events[1].step, 151);
  truncate_events(folder.path(), 20);
  EXPECT_EQ(steps_of(first.path()).size(), 20u);
  EXPECT_TRUE(steps_of(second.path()).empty());
}

TEST(TensorBoard, ARecordThatWasCutShortGoes) {
  const TemporaryFolder folder;
  Path path;
  {
    EventsFile file(folder.path(), 0);
    for (int64_t step = 1; step <= 3; ++step) file.add(step, std::vector<Scalar>{{"a", 1.0}});
    path = file.path();
  }
  const std::string whole = read_text(path);
  for (size_t size = 0; size < whole.size(); ++size) {
    std::ofstream(path, std::ios::binary) << whole.substr(0, size);
    truncate_events(folder.path(), 100);
    const size_t left = fs::file_size(path);
    EXPECT_LE(left, size);
    const std::vector<int64_t> steps = steps_of(path);  // checks every record
    for (size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i], static_cast<int64_t>(i) + 1);
  }
  std::ofstream(path, std::ios::binary) << whole;
  truncate_events(folder.path(), 3);
  EXPECT_EQ(read_text(path), whole);
}

}  // namespace
}  // namespace troika

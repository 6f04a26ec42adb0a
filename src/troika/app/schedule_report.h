// The numbers of a simulated schedule as text and as JSON, for `troika schedule`. Pure; thread-safe.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "troika/app/schedule_options.h"
#include "troika/simulate/simulate.h"

namespace troika {

/// "1f1b: 4 lanes, 8 micro-batches; forward 1, backward 2".
std::string heading(const Subject& subject);

/// "makespan 33, bubble 27.3 %; cost 33, bubble 27.3 %; 48 messages; peak held 4 micro-batches (lane 0)", and
/// a line more where cost and makespan differ.
std::string summary_text(const Subject& subject, const Summary& summary);

/// The fields of `simulate --json`.
nlohmann::ordered_json summary_json(const Subject& subject, const Summary& summary);

/// "27.3 %".
std::string percent(double rate);

/// A time: a plain number, or with a unit where it is measured.
std::string time_text(double seconds, bool measured);

/// "7 lanes", "1 lane".
std::string counted(int64_t number, const std::string& thing);

/// Stages per lane; of the fullest one.
int chunks_of(const Schedule& schedule);

}  // namespace troika

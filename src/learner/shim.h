// What the C++ of the learner has in common.

#pragma once

#include <cstdlib>
#include <cstring>
#include <exception>

// The last error of this thread.
extern thread_local char* forest_thrown;

// Runs `work`, and keeps what it throws for `forest_error`.
template <typename Work>
bool caught(Work work) {
    try {
        work();
        return true;
    } catch (const std::exception& e) {
        std::free(forest_thrown);
        forest_thrown = strdup(e.what());
        return false;
    }
}

package org.msdc.encoder

import androidx.test.ext.junit.runners.AndroidJUnit4
import androidx.test.platform.app.InstrumentationRegistry
import java.io.File
import kotlinx.coroutines.runBlocking
import org.junit.Assert.assertEquals
import org.junit.Assert.assertTrue
import org.junit.Test
import org.junit.runner.RunWith

@RunWith(AndroidJUnit4::class)
class SelfTestOnDevice {
    @Test
    fun goldenTextsAreReproduced() {
        val context = InstrumentationRegistry.getInstrumentation().targetContext
        SentenceEncoder.fromAssets(context).use { encoder ->
            val found = encoder.selfTest()
            assertEquals(0, found.idsDiffer)
            assertTrue(found.meanCosine >= 0.999f)
            assertEquals(encoder.width, runBlocking { encoder.encode("hello") }.size)
        }
    }

    @Test
    fun searchFindsWhatTheExportFound() {
        val context = InstrumentationRegistry.getInstrumentation().targetContext
        val answers = InstrumentationRegistry.getInstrumentation().context.assets.open("search.tsv").bufferedReader()
        val file = File(context.cacheDir, "answers.sqlite").also { it.delete() }
        SentenceEncoder.fromAssets(context).use { encoder ->
            runBlocking {
                SearchIndex.open(file, encoder).use { index ->
                    // The weight of a cosine x the difference of two processors' cosines.
                    assertEquals(emptyList<String>(), differences(answers.readLines(), index, tolerance = 0.2))
                }
            }
        }
    }
}

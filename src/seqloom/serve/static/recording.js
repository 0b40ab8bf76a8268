/* A microphone: what is said becomes a WAV file of one channel, which every server that reads sound can read. */

const MOST = 60_000; // milliseconds

export const canRecord = () => Boolean(navigator.mediaDevices?.getUserMedia && window.MediaRecorder && window.AudioContext);

/** 16 bits a sample, little-endian, with the head that the format asks for. */
function wav(samples, rate) {
  const view = new DataView(new ArrayBuffer(44 + 2 * samples.length));
  const text = (place, letters) => [...letters].forEach((letter, index) => view.setUint8(place + index, letter.charCodeAt(0)));
  text(0, 'RIFF');
  view.setUint32(4, 36 + 2 * samples.length, true);
  text(8, 'WAVEfmt ');
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true);
  view.setUint16(22, 1, true);
  view.setUint32(24, rate, true);
  view.setUint32(28, 2 * rate, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  text(36, 'data');
  view.setUint32(40, 2 * samples.length, true);
  samples.forEach((value, index) => view.setInt16(44 + 2 * index, Math.max(-1, Math.min(1, value)) * 32767, true));
  return new File([view], 'recording.wav', { type: 'audio/wav' });
}
async function decoded(blob) {
  const context = new AudioContext();
  try {
    const sound = await context.decodeAudioData(await blob.arrayBuffer());
    return wav(sound.getChannelData(0), sound.sampleRate);
  } finally {
    context.close();
  }
}
/** Begins to listen; gives what stops it, and a promise of the file. Rejects where the person or the browser says no. */
export async function record() {
  const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
  const recorder = new MediaRecorder(stream), parts = [];
  recorder.addEventListener('dataavailable', (event) => parts.push(event.data));
  const file = new Promise((resolve, reject) => recorder.addEventListener('stop', () => {
    for (const track of stream.getTracks()) track.stop();
    decoded(new Blob(parts, { type: recorder.mimeType })).then(resolve, reject);
  }));
  recorder.start();
  const stop = () => recorder.state !== 'inactive' && recorder.stop();
  setTimeout(stop, MOST);
  return { stop, file };
}
